"""Checks that every file of tests is built: a CMakeLists.txt of its folder, or of one above, names it.

usage: check_tests.py ROOT
Prints each one that is not, and exits with 1 if there is one.
"""

import pathlib
import re
import sys

COMMENT = re.compile(r"#.*")
WORD = re.compile(r'[^\s()"]+')


def named_in(lists):
    text = COMMENT.sub("", lists.read_text()) if lists.is_file() else ""
    return set(WORD.findall(text))


def unbuilt(root):
    for file in sorted((root / "tests").rglob("*_test.cpp")):
        above = [folder for folder in file.parents if folder.is_relative_to(root / "tests")]
        if not any(str(file.relative_to(folder)) in named_in(folder / "CMakeLists.txt") for folder in above):
            yield f"{file.relative_to(root)}: no CMakeLists.txt names it, so it never runs"


def main():
    found = list(unbuilt(pathlib.Path(sys.argv[1]).resolve()))
    for line in found:
        print(line)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
