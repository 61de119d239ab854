"""Finds what `script/test --filter REGEX` names: test programs, or else single tests of them.

usage: find_tests.py BUILD REGEX
Prints two lines: a regular expression of program names for ctest, and a list of tests for GTEST_FILTER,
which is empty where whole programs are meant. What nothing here is called by is printed as it came: another
build may have it.
"""

import json
import re
import subprocess
import sys


def tests_of(program):
    """"Suite.Name" of each test, as the program takes it."""
    listed = subprocess.run([program, "--gtest_list_tests"], check=True, capture_output=True, text=True).stdout
    suite = None
    for line in listed.splitlines():
        name = line.split("#")[0].rstrip()
        if not line.startswith(" ") and name.endswith("."):
            suite = name
        elif suite and name:
            yield suite + name.strip()


def main():
    build, wanted = sys.argv[1], re.compile(sys.argv[2])
    shown = subprocess.run(["ctest", "--test-dir", build, "--show-only=json-v1"], check=True, capture_output=True,
                           text=True).stdout
    programs = json.loads(shown)["tests"]
    found = {}
    if not any(wanted.search(program["name"]) for program in programs):
        for program in programs:
            labels = [value for entry in program["properties"] if entry["name"] == "LABELS" for value in entry["value"]]
            # Without a command it was not built.
            if "gtest" not in labels or "command" not in program:
                continue
            names = [name for name in tests_of(program["command"][0]) if wanted.search(name)]
            if names:
                found[program["name"]] = names
    if not found:
        print(sys.argv[2], "", sep="\n")
        return
    print("^(" + "|".join(map(re.escape, found)) + ")$")
    print(":".join(dict.fromkeys(name for names in found.values() for name in names)))


main()
