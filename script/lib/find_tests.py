"""Finds what `script/test --filter REGEX` names: test programs, or else single tests of them.

usage: find_tests.py BUILD REGEX
Prints two lines: a regular expression of program names for ctest, and a list of tests for GTEST_FILTER,
which is empty where whole programs are meant. What nothing here is called by is printed as it came: another
build may have it.
"""

import collections
import json
import re
import subprocess
import sys

Program = collections.namedtuple("Program", "command reports")


def programs_of(build):
    """{name: Program}; reports: it is one of GoogleTest. Without a command it was not built."""
    shown = subprocess.run(["ctest", "--test-dir", build, "--show-only=json-v1"], check=True, capture_output=True,
                           text=True).stdout
    programs = {}
    for test in json.loads(shown)["tests"]:
        labels = [value for entry in test["properties"] if entry["name"] == "LABELS" for value in entry["value"]]
        programs[test["name"]] = Program(test.get("command", [None])[0], "gtest" in labels)
    return programs


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
    programs = programs_of(build)
    found = {}
    if not any(map(wanted.search, programs)):
        for name, program in programs.items():
            tests = [test for test in tests_of(program.command) if wanted.search(test)] \
                if program.reports and program.command else []
            if tests:
                found[name] = tests
    if not found:
        print(sys.argv[2], "", sep="\n")
        return
    print("^(" + "|".join(map(re.escape, found)) + ")$")
    print(":".join(dict.fromkeys(test for tests in found.values() for test in tests)))


if __name__ == "__main__":
    main()
