"""Compares the folder table of ARCHITECTURE.md with the tree, and asks each larger folder for its README.

usage: architecture.py ROOT
Prints each difference and exits with 1 if there is one.
"""

import pathlib
import re
import sys

ROW = re.compile(r"^\| `(src/[a-z]+|apps/[a-z]+|include/[a-z]+)/` \|", re.MULTILINE)
FILES_WITHOUT_README = 5
CODE = ("src", "apps", "include", "tests", "bench", "examples", "clients")
SOURCES = {".cpp", ".h", ".go", ".java", ".py", ".rs", ".js", ".ts", ".mjs"}


def differences(root):
    named = set(ROW.findall((root / "ARCHITECTURE.md").read_text()))
    there = {f"{top}/{folder.name}" for top in ("src", "apps", "include")
             for folder in (root / top).iterdir() if folder.is_dir()}
    for folder in sorted(named - there):
        yield f"ARCHITECTURE.md names {folder}/, which is not there"
    for folder in sorted(there - named):
        yield f"ARCHITECTURE.md does not name {folder}/"
    folders = [folder for top in CODE for folder in (root / top).rglob("*") if folder.is_dir()]
    for folder in sorted(folders + [root / top for top in CODE]):
        files = [file for file in folder.iterdir() if file.suffix in SOURCES]
        if len(files) > FILES_WITHOUT_README and not (folder / "README.md").is_file():
            yield f"{folder.relative_to(root)} has {len(files)} files and no README.md"


def main():
    found = list(differences(pathlib.Path(sys.argv[1])))
    for line in found:
        print(line)
    return 1 if found else 0


sys.exit(main())
