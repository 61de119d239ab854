"""Checks that every option of `outbox` that the documentation names exists.

usage: named_options.py ROOT
"""

import pathlib
import re
import sys

KNOWN = re.compile(r"`(--[a-z0-9-]+)`")
CODE = re.compile(r"`([^`]+)`")
OPTION = re.compile(r"(?<![\w-])(--[a-z0-9-]+)")
OTHERS = {"--full", "--filter", "--most", "--quick", "--help"}  # of script/*, and of every command


def main():
    root = pathlib.Path(sys.argv[1])
    reference = root / "docs/reference"
    known = OTHERS.union(KNOWN.findall((reference / "options.md").read_text()))
    pages = [page for page in (root / "docs").rglob("*.md") if reference not in page.parents]
    found, wrong = 0, []
    for page in [*pages, root / "README.md"]:
        for number, line in enumerate(page.read_text().splitlines(), 1):
            for code in CODE.findall(line):
                if not code.startswith(("--", "outbox ")):
                    continue
                options = OPTION.findall(code)
                found += len(options)
                wrong += [f"{page.relative_to(root)}:{number}: {option} is no option of outbox"
                          for option in options if option not in known]
    if not found:
        sys.exit("the documentation names no option")
    print("\n".join(wrong))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
