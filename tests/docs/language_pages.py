"""Checks that the code in docs/languages/*.md and clients/*/README.md is that which the tests run.

usage: language_pages.py ROOT
Every block whose language is not sh must stand, line by line, in a file of
examples/polyglot/<page> or clients/<language>/tests; each program has its page, and each page
shows every part.
"""

import pathlib
import re
import sys
import textwrap

BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PARTS = ("INSERT INTO outbox_events", "outbox_emit(", "inbox_accept(", "outbox_mailbox_take(",
         "outbox_mailbox_done(", "outbox_mailbox_failed(", "idempotency_claim(")


def lines_of(text):
    return textwrap.dedent(text.expandtabs(4)).strip("\n").splitlines()


def stands_in(block, text):
    wanted, lines = lines_of(block), text.expandtabs(4).splitlines()
    size = len(wanted)
    return any(lines_of("\n".join(lines[i:i + size])) == wanted
               for i in range(len(lines) - size + 1))


def faults_of(page, folder, parts=PARTS):
    blocks = [code for language, code in BLOCK.findall(page.read_text()) if language != "sh"]
    files = [f.read_text() for f in sorted(folder.rglob("*")) if f.is_file()]
    for block in blocks:
        if not any(stands_in(block, text) for text in files):
            yield f"{page}: nothing in {folder} has this code:\n{block}"
    for part in parts:
        if not any(part in block for block in blocks):
            yield f"{page}: shows no code with {part}...)"


def main():
    root = pathlib.Path(sys.argv[1])
    pages = {p.stem: p for p in (root / "docs/languages").glob("*.md") if p.stem != "README"}
    folders = {f.name: f for f in (root / "examples/polyglot").iterdir() if f.is_dir()}
    faults = [f"{name} has a page or a program, but not both" for name in pages.keys() ^ folders.keys()]
    for name in sorted(pages.keys() & folders.keys()):
        faults += faults_of(pages[name], folders[name])
    for client in sorted((root / "clients").iterdir()):
        faults += faults_of(client / "README.md", client / "tests", ("outbox",))
    for fault in faults:
        print(fault)
    return 1 if faults or not pages else 0


if __name__ == "__main__":
    sys.exit(main())
