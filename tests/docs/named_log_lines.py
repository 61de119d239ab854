"""Every event that the relay logs stands in docs/reference/logs.md, and every one that stands there is logged.

usage: named_log_lines.py ROOT
"""

import pathlib
import re
import sys

# How lines begin: a note of a level, or a call with the name alone where the level is the caller's.
LOGGED = re.compile(r'\bk(?:Debug|Info|Warn|Warning|Error),\s*"([a-z_]+)"')


def main():
    root = pathlib.Path(sys.argv[1])
    sources = "\n".join(
        path.read_text() for folder in ("src", "apps") for path in sorted((root / folder).rglob("*.cpp"))
    )
    page = (root / "docs" / "reference" / "logs.md").read_text()
    documented = set()
    for line in page.splitlines():
        if line.startswith("| `"):
            documented.update(re.findall(r"`([a-z_]+)`", line.split("|")[1]))
    logged = set(LOGGED.findall(sources))
    if len(logged) < 40:
        sys.exit(f"only {len(logged)} log lines were found: does LOGGED still know how they are written?")
    faults = [f"`{name}` is logged and not documented" for name in sorted(logged - documented)]
    faults += [
        f"`{name}` is documented and nowhere in the sources"
        for name in sorted(documented)
        if f'"{name}"' not in sources
    ]
    if faults:
        sys.exit("docs/reference/logs.md: " + "; ".join(faults))
    print(f"{len(documented)} log lines are documented")


if __name__ == "__main__":
    main()
