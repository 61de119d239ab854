"""The tests that `script/test` leaves to `--long`: those that tests/long_tests.txt names.

usage: long_tests.py BUILD              two lines: programs for ctest's -E, tests for GTEST_FILTER
       long_tests.py BUILD --over SECONDS FOLDER...
                                        the list anew, from the reports of GoogleTest in these folders

A line of the list is a program, or `program: Suite.Test`, which stands for all its parameters. One that
names nothing is an error: the list would go on leaving out what is no longer there.
"""

import collections
import pathlib
import re
import sys
import xml.etree.ElementTree as ElementTree

from find_tests import programs_of, tests_of

LIST = pathlib.Path(__file__).parents[2] / "tests" / "long_tests.txt"


def without_parameters(test):
    """Both/Suite.Test/PostgreSQL, Suite/Type.Test -> Suite.Test"""
    of_value = re.fullmatch(r"(?:[^./]+/)?([^./]+)\.([^/]+)/.+", test)
    suite, name = (of_value or re.fullmatch(r"([^./]+)(?:/[^.]+)?\.(.+)", test)).groups()
    return f"{suite}.{name}"


def listed():
    """{program: [Suite.Test]}; none: the program as a whole."""
    programs = collections.defaultdict(list)
    for line in LIST.read_text().splitlines():
        program, _, test = line.partition(":")
        if program and not program.startswith("#"):
            programs[program] += [test.strip()] if test else []
    return programs


def left_out(build):
    """Programs, and tests of others by their full names."""
    there = programs_of(build)
    whole, tests, kept = set(), set(), set()
    for program, names in listed().items():
        if program not in there:
            sys.exit(f"{LIST}: there is no test program {program}; remove it")
        if not names:
            whole.add(program)
            continue
        all_tests = list(tests_of(there[program].command))
        for name in set(names) - set(map(without_parameters, all_tests)):
            sys.exit(f"{LIST}: {program} has no test {name}; remove it")
        out = {test for test in all_tests if without_parameters(test) in names}
        tests |= out
        kept |= set(all_tests) - out
        if len(out) == len(all_tests):
            sys.exit(f"{LIST}: these are all tests of {program}; name the program alone")
    for test in tests & kept:
        sys.exit(f"{LIST}: another program has a test {test}, too, which would be left out with it; rename one")
    return whole, tests


def print_left_out(build):
    whole, tests = left_out(build)
    print("^(" + "|".join(map(re.escape, sorted(whole))) + ")$")
    print("-" + ":".join(sorted(tests)))


def print_list(build, least, folders):
    seconds = collections.defaultdict(lambda: collections.defaultdict(list))
    for path in (path for folder in folders for path in pathlib.Path(folder).glob("*.xml")):
        for case in ElementTree.parse(path).iter("testcase"):
            test = without_parameters(f"{case.get('classname')}.{case.get('name')}")
            seconds[path.stem][test].append(float(case.get("time")))
    for program, tests in sorted(seconds.items()):
        out = sorted(test for test, times in tests.items() if max(times) >= least)
        if len(out) == len(tests):
            print(program)
        else:
            print(*(f"{program}: {test}" for test in out), sep="\n", end="\n" if out else "")


if __name__ == "__main__":
    if len(sys.argv) > 4 and sys.argv[2] == "--over":
        print_list(sys.argv[1], float(sys.argv[3]), sys.argv[4:])
    elif len(sys.argv) == 2:
        print_left_out(sys.argv[1])
    else:
        sys.exit(__doc__)
