"""Compares the folder table of ARCHITECTURE.md with the tree, and asks each larger folder for its README.

usage: architecture.py ROOT
Prints each difference and exits with 1 if there is one.
"""

import pathlib
import re
import sys

ROW = re.compile(r"^\| `(src/[a-z]+|apps/[a-z]+|include/[a-z]+)/` \|", re.MULTILINE)
FILES_WITHOUT_README = 5


def differences(root):
    named = set(ROW.findall((root / "ARCHITECTURE.md").read_text()))
    there = {f"{top}/{folder.name}" for top in ("src", "apps", "include")
             for folder in (root / top).iterdir() if folder.is_dir()}
    for folder in sorted(named - there):
        yield f"ARCHITECTURE.md names {folder}/, which is not there"
    for folder in sorted(there - named):
        yield f"ARCHITECTURE.md does not name {folder}/"
    for folder in sorted((root / "src").rglob("*")):
        if not folder.is_dir() or folder.name == "migrations" or folder.parent.name == "migrations":
            continue
        files = [file for file in folder.iterdir() if file.suffix in (".cpp", ".h")]
        if len(files) > FILES_WITHOUT_README and not (folder / "README.md").is_file():
            yield f"{folder.relative_to(root)} has {len(files)} files and no README.md"


def main():
    found = list(differences(pathlib.Path(sys.argv[1])))
    for line in found:
        print(line)
    return 1 if found else 0


sys.exit(main())
