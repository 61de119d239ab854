"""Checks that what the table of docs/guards.md says about where a guard stands is there.

usage: named_guards.py ROOT
"""

import pathlib
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "script" / "lib"))
import mutants  # noqa: E402

NAME = re.compile(r"`((?:\w+::)*[A-Za-z_]\w*)`")
PLACE = re.compile(r"`(\w+(?:/\w+)+)`")


def stands(name, sources):
    """Whether `Scope::name` is defined or declared in the class, enumeration or namespace of that name."""
    scope, _, simple = name.rpartition("::")
    word = re.compile(r"\b" + re.escape(simple) + r"\b")
    with_word = [text for text in sources if simple in text and word.search(text)]
    if not scope:
        return bool(with_word)
    scope = scope.rpartition("::")[2]
    qualified = re.compile(r"\b" + re.escape(f"{scope}::{simple}") + r"\b")
    opens = re.compile(r"\b(?:class|struct|namespace)\s+(?:\w+\s+|\w+::)*" + re.escape(scope) + r"\b[^;{()]*\{")
    for text in with_word:
        if f"{scope}::{simple}" in text and qualified.search(text):
            return True
        for begin in opens.finditer(text) if scope in text else ():
            if word.search(text, begin.end(), mutants.closing(mutants.masked(text), begin.end() - 1)):
                return True
    return False


def main():
    root = pathlib.Path(sys.argv[1])
    sources = [path.read_text() for folder in ("src", "include", "apps", "script", "clients")
               for path in sorted((root / folder).rglob("*"))
               if path.suffix in (".cpp", ".h", ".sql", ".py", "") and path.is_file()]
    # Folders, and files without what follows their last dot.
    places = {str(path.relative_to(root).with_suffix("")) for folder in ("src", "include", "apps", "script", "clients")
              for path in (root / folder).rglob("*")}
    table = (root / "docs/guards.md").read_text().partition("\n## ")[0]
    found, wrong = 0, []
    for line in table.splitlines():
        cells = re.split(r"(?<!\\)\|", line)
        if not line.startswith("| ") or len(cells) != 5:
            continue
        for name in NAME.findall(cells[2]):
            found += 1
            if not stands(name, sources):
                wrong.append(f"docs/guards.md: no {name}, where it says that {cells[1].strip()}")
        for place in PLACE.findall(cells[2]):
            found += 1
            if not any(f"/{known}/".endswith(f"/{place}/") for known in places):
                wrong.append(f"docs/guards.md: no {place}, where it says that {cells[1].strip()}")
    if not found:
        sys.exit("docs/guards.md names no guard")
    print("\n".join(wrong))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
