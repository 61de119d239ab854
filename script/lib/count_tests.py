"""Adds up test results and prints "N passed, N failed[, N skipped]"; exits with 1 on a failure or
when nothing was tested. A test that several builds ran counts once, as the worst of its runs; each
build has a line of its own before.

usage: count_tests.py FOLDER FAILED_STEPS
FOLDER holds, per build NAME, ctest's NAME.junit, its list of tests NAME.json and the test programs' own
NAME/*.xml. A program of GoogleTest without a readable report has failed; another one counts as one test.
What a failed test says stands below its name, so that the end of a long log suffices.
"""

import collections
import json
import pathlib
import sys
import xml.etree.ElementTree as ElementTree

PASSED, SKIPPED, FAILED = "passed", "skipped", "failed"
WORSE = (SKIPPED, PASSED, FAILED)
MOST_SAID = 30  # lines of a failed test


def cases_of(path):
    try:
        return list(ElementTree.parse(path).iter("testcase"))
    except (ElementTree.ParseError, FileNotFoundError):
        return []


def reporting(path):
    """The programs that write reports of their own."""
    tests = json.loads(path.read_text())["tests"]
    return {test["name"] for test in tests for entry in test["properties"]
            if entry["name"] == "LABELS" and "gtest" in entry["value"]}


def outcome_of(case):
    if case.find("failure") is not None:
        return FAILED
    return SKIPPED if case.find("skipped") is not None or case.get("status") == "notrun" else PASSED


def said_by(case):
    """What a test says of its failure: its first lines; of a program, the last ones of its output."""
    failures = [text for failure in case.findall("failure") for text in (failure.text or "").splitlines()]
    return failures[:MOST_SAID] or case.findtext("system-out", "").splitlines()[-MOST_SAID:]


def results_of(junit):
    """(test, outcome, what it says where it failed) of all that ran in a build."""
    reporters = reporting(junit.with_suffix(".json"))
    for program in cases_of(junit):
        name, status = program.get("name"), program.get("status")
        cases = [] if status == "notrun" else cases_of(junit.with_suffix("") / f"{name}.xml")
        outcomes = [outcome_of(case) for case in cases]
        for case, outcome in zip(cases, outcomes):
            yield f"{name}: {case.get('classname')}.{case.get('name')}", outcome, said_by(case)
        if status != "run" and FAILED not in outcomes:
            # It crashed, ran out of time, or its sanitizer spoke after the last test.
            yield name, FAILED, said_by(program)
        elif not cases and status == "run":
            yield name, FAILED if name in reporters else PASSED, said_by(program)


def text_of(outcomes):
    count = collections.Counter(outcomes)
    return f"{count[PASSED]} passed, {count[FAILED]} failed" + (f", {count[SKIPPED]} skipped" if count[SKIPPED] else "")


def main():
    folder, failed_steps = pathlib.Path(sys.argv[1]), int(sys.argv[2])
    total, lines = {}, []
    for junit in sorted(folder.glob("*.junit")):
        results = {}
        for test, outcome, said in results_of(junit):
            results[test] = max(results.get(test, SKIPPED), outcome, key=WORSE.index)
            total[test] = max(total.get(test, SKIPPED), outcome, key=WORSE.index)
            if outcome == FAILED:
                print(f"failed: {junit.stem}: {test}", *(f"    {line}" for line in said), sep="\n", file=sys.stderr)
        lines.append(f"{junit.stem}: {text_of(results.values())}")
    if len(lines) > 1:
        print("\n".join(lines))
    outcomes = list(total.values()) + [FAILED] * failed_steps
    print(text_of(outcomes))
    return 1 if FAILED in outcomes or PASSED not in outcomes else 0


sys.exit(main())
