"""Adds up test results and prints "N passed, N failed[, N skipped]"; exits with 1 on a failure or
when nothing was tested.

usage: count_tests.py FOLDER FAILED_STEPS
FOLDER holds, per build NAME, ctest's NAME.junit and the test programs' NAME/*.xml. A program that
left no readable result of its own counts as one test, as ctest saw it.
"""

import pathlib
import sys
import xml.etree.ElementTree as ElementTree

folder = pathlib.Path(sys.argv[1])
passed, failed, skipped = 0, int(sys.argv[2]), 0
failures = []


def cases_of(path):
    try:
        return list(ElementTree.parse(path).iter("testcase"))
    except (ElementTree.ParseError, FileNotFoundError):
        return []


for junit in sorted(folder.glob("*.junit")):
    for program in cases_of(junit):
        name, status = program.get("name"), program.get("status")
        cases = [] if status == "notrun" else cases_of(folder / junit.stem / f"{name}.xml")
        broken = [c for c in cases if c.find("failure") is not None]
        idle = [c for c in cases if c.find("skipped") is not None or c.get("status") == "notrun"]
        if status != "run" and not broken:
            # It crashed, ran out of time, or its sanitizer spoke after the last test.
            failed += 1
            failures.append(f"{junit.stem}: {name}")
        elif not cases:
            passed += 1
        failed += len(broken)
        failures += [f"{junit.stem}: {c.get('classname')}.{c.get('name')}" for c in broken]
        skipped += len(idle)
        passed += len(cases) - len(broken) - len(idle)

for failure in failures:
    print(f"failed: {failure}", file=sys.stderr)
print(f"{passed} passed, {failed} failed" + (f", {skipped} skipped" if skipped else ""))
sys.exit(1 if failed or not passed else 0)
