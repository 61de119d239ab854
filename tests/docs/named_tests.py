"""Checks that every test that docs/guarantees.md, guards.md and pitfalls.md name is there, and that each pitfall has one.

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
    missing = 0
    for page in ("guarantees", "guards", "pitfalls"):
        named = set(NAMED.findall((root / f"docs/{page}.md").read_text()))
        if not named:
            sys.exit(f"docs/{page}.md names no test")
        for name in sorted(named - defined):
            print(f"docs/{page}.md names {name}, which does not exist")
            missing += 1
    rows = [line for line in (root / "docs/pitfalls.md").read_text().splitlines() if line.startswith("| ")][2:]
    if not rows:
        sys.exit("docs/pitfalls.md has no rows")
    for row in rows:
        if not NAMED.search(row):
            print(f"docs/pitfalls.md: no test shows this: {row.split('|')[1].strip()}")
            missing += 1
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
