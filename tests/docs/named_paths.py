"""Paths of the tree that a page names in backticks (src/..., tests/...) are there, and files of code that a README
names alone (`lease.cpp`) are in its folder.

usage: named_paths.py ROOT
"""

import itertools
import pathlib
import re
import sys

TOPS = ("apps", "bench", "clients", "cmake", "docs", "examples", "include", "packaging", "script", "src", "tests")
CODE = re.compile(r"`([^`\n]+)`")
PATH = re.compile(rf"(?<![\w/.-])((?:{'|'.join(TOPS)})/[\w./@*{{}},<>-]*[\w/}}*>])")
ALONE = re.compile(r"[\w-]+\.(?:cpp|py)")
PLACEHOLDER = re.compile(r"(?:^|/)[A-Z]{2,}(?:/|$)")  # script/servers/NAME


def spelled(path):
    """`a/{b,c}.h`: a/b.h and a/c.h."""
    parts = [part.strip("{}").split(",") if part.startswith("{") else [part] for part in re.split(r"(\{.*?\})", path)]
    return ["".join(one) for one in itertools.product(*parts)]


def is_there(root, folder, path):
    return any(any(place.glob(path.rstrip("/"))) for place in (root, folder))


def main():
    root = pathlib.Path(sys.argv[1])
    pages = [*root.glob("*.md"), *(page for top in TOPS for page in sorted((root / top).rglob("*.md"))
                                   if "node_modules" not in page.parts)]
    wrong, seen = [], 0
    for page in pages:
        for code in CODE.findall(page.read_text()):
            named = [path for found in PATH.findall(code) if "<" not in found and not PLACEHOLDER.search(found) for path in spelled(found)]
            if page.name == "README.md" and ALONE.fullmatch(code):
                named.append(f"**/{code}" if page.parent != root else f"src/**/{code}")
            seen += len(named)
            wrong += [f"{page.relative_to(root)} names {path}, which is not there" for path in named
                      if not is_there(page.parent if path.startswith("**/") else root, page.parent, path)]
    if seen < 100:
        sys.exit(f"only {seen} paths were found")
    if wrong:
        sys.exit("\n".join(wrong))


if __name__ == "__main__":
    main()
