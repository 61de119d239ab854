"""Compares the folder table of ARCHITECTURE.md with the tree and with what tests/layering lets each folder
include, and asks each larger folder for its README.

usage: architecture.py ROOT
Prints each difference and exits with 1 if there is one.
"""

import pathlib
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "layering"))
import check_includes  # noqa: E402

ROW = re.compile(r"^\| `((?:src|apps|include)/[a-z]+)/` \|.*\| ([^|]+) \|$", re.MULTILINE)
NAME = re.compile(r"`(\w+)/?`")
FILES_WITHOUT_README = 5
TOPS = ("src", "apps", "include", "tests", "bench", "examples", "clients", "script", "docs", "packaging", "cmake")
NOT_COUNTED = ("README.md", "CMakeLists.txt")
MADE = {"__pycache__", "node_modules", "target", "build"}  # by the tools of clients and examples
# Each file there is a template to Helm, or what a target begins with.
NO_PLACE = {"packaging/helm/outbox/templates", "tests/fuzz/corpus"}


def layer_of(folder):
    return {"include/outbox": "public", "apps/outbox": "apps"}.get(folder, folder.partition("/")[2])


def differences(root):
    table = dict(ROW.findall((root / "ARCHITECTURE.md").read_text()))
    there = {f"{top}/{folder.name}" for top in ("src", "apps", "include")
             for folder in (root / top).iterdir() if folder.is_dir()}
    for folder in sorted(table.keys() - there):
        yield f"ARCHITECTURE.md names {folder}/, which is not there"
    for folder in sorted(there - table.keys()):
        yield f"ARCHITECTURE.md does not name {folder}/"
    for folder in sorted(there & table.keys()):
        says = set(NAME.findall(table[folder]))
        may = {"include" if layer == "public" else layer for layer in check_includes.ALLOWED[layer_of(folder)]}
        if says | {"include"} != may | {"include"}:
            yield (f"ARCHITECTURE.md, may use of {folder}/: {', '.join(sorted(says - may)) or 'nothing'} too much, "
                   f"{', '.join(sorted(may - says - {'include'})) or 'nothing'} missing "
                   "(tests/layering/check_includes.py)")
    yield from without_readme(root)


def without_readme(root):
    folders = [folder for top in TOPS for folder in (root / top, *(root / top).rglob("*")) if folder.is_dir()]
    for folder in sorted(folders):
        path = folder.relative_to(root)
        if MADE.intersection(path.parts) or str(path) in NO_PLACE or (folder / "README.md").is_file():
            continue
        files = [file for file in folder.iterdir() if file.is_file() and file.name not in NOT_COUNTED]
        if len(files) > FILES_WITHOUT_README:
            yield f"{path} has {len(files)} files and no README.md"


def main():
    found = list(differences(pathlib.Path(sys.argv[1]).resolve()))
    for line in found:
        print(line)
    return 1 if found else 0


sys.exit(main())
