"""Checks that every test that docs/guarantees.md names exists.

usage: named_tests.py ROOT
"""

import pathlib
import re
import sys

DEFINITION = re.compile(
    r"^(?:TEST|TEST_F|TEST_P|TYPED_TEST|RC_GTEST_PROP|RC_GTEST_FIXTURE_PROP)"
    r"\(\s*(\w+),\s*(\w+)", re.MULTILINE)
NAMED = re.compile(r"`([A-Z]\w+\.[A-Z]\w+)`")


def main():
    root = pathlib.Path(sys.argv[1])
    defined = set()
    for file in (root / "tests").rglob("*"):
        if file.suffix in (".cpp", ".h"):
            defined.update(".".join(match) for match in DEFINITION.findall(file.read_text()))
    named = set(NAMED.findall((root / "docs/guarantees.md").read_text()))
    if not named:
        sys.exit("docs/guarantees.md names no test")
    missing = sorted(named - defined)
    for name in missing:
        print(f"docs/guarantees.md names {name}, which does not exist")
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
