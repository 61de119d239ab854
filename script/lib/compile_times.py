"""Prints what a build folder took to compile, as the table in CONTRIBUTING.md; build without a compiler cache before.

usage: compile_times.py BUILD [COUNT]
"""

import json
import pathlib
import re
import sys


def main():
    build = pathlib.Path(sys.argv[1]).resolve()
    count = int(sys.argv[2]) if len(sys.argv) > 2 else 20
    commands = json.loads((build / "compile_commands.json").read_text())
    root = pathlib.Path(__file__).resolve().parents[2]
    sources = {re.search(r" -o (\S+)", entry["command"]).group(1): entry["file"] for entry in commands}
    seconds = {}
    for line in (build / ".ninja_log").read_text().splitlines()[1:]:
        start, end, _, output, _ = line.split("\t")
        if output.endswith((".o", ".gch")):
            seconds[output] = (int(end) - int(start)) / 1000
    print(f"{len(seconds)} files, {sum(seconds.values()) / 60:.1f} minutes of one core\n")
    print("| file | s |\n| --- | --- |")
    for output, taken in sorted(seconds.items(), key=lambda item: -item[1])[:count]:
        source = pathlib.Path(sources.get(output, output))
        name = source.relative_to(root) if source.is_relative_to(root) else source
        if folder := re.match(r"unity_(\w+)_cxx\.cxx$", source.name):
            name = folder[1].replace("_", "/") + "/*.cpp"
        print(f"| `{name}` | {taken:.0f} |")


sys.exit(main())
