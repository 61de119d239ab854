"""Searches every order of the steps of relay.pml, and then again without each of its guards.

usage: model_test.py FOLDER_TO_WORK_IN [--full]
  --full  three events (a hole and two events of a key at once), by a search that may miss some

Without a guard an assertion must fail: what nothing depends on is no guard of this model.
"""

import os
import re
import subprocess
import sys

MODEL = os.path.join(os.path.dirname(os.path.abspath(__file__)), "relay.pml")
DEPTH = 1_000_000
DEADLINE_S = 3000  # of one search


class NotSearched(Exception):
    pass


def run(command, folder):
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
    if done.returncode != 0:
        raise NotSearched(f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout


def search(folder, defines, compiler_options):
    """(first violation or None, states). Ending blocked is no fault: the model's judge looks then."""
    os.makedirs(folder, exist_ok=True)
    run(["spin", "-a", *[f"-D{name}" for name in defines], MODEL], folder)
    run(["cc", "-w", "-DSAFETY", *compiler_options, "-o", "pan", "pan.c"], folder)
    out = run(["./pan", "-E", f"-m{DEPTH}"], folder)
    states = re.search(r"^\s*(\S+) states, stored", out, re.M)
    violation = re.search(r"^pan:\d+: (assertion violated .*)$", out, re.M)
    errors = re.search(r"errors: (\d+)", out)
    if not states or not errors or "max search depth too small" in out:
        raise NotSearched(out)
    if (errors.group(1) != "0") != bool(violation) or (not violation and "Search not completed" in out):
        raise NotSearched(out)
    return violation and violation.group(1), int(float(states.group(1)))


def main():
    work = sys.argv[1]
    full = "--full" in sys.argv[2:]
    failed = False
    with open(MODEL, encoding="utf-8") as file:
        guards = sorted(set(re.findall(r"WITHOUT_\w+", file.read())))
    if not guards:
        raise NotSearched("the model names no guard")

    options = ["-O2", "-DBITSTATE"] if full else ["-O2", "-DCOLLAPSE"]
    violation, states = search(os.path.join(work, "model"), [f"EVENTS={3 if full else 2}"], options)
    print(f"{states} states with all guards: {violation or 'every promise holds'}")
    failed |= violation is not None
    for guard in [] if full else guards:
        violation, states = search(os.path.join(work, guard), ["EVENTS=2", guard], ["-O0", "-DCOLLAPSE"])
        print(f"{guard}: {violation or 'NOTHING BREAKS'} ({states} states)")
        failed |= violation is None
    return 1 if failed else 0


sys.exit(main())
