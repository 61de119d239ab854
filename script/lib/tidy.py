"""Runs clang-tidy over the files of some builds, each in the first that has it; a file that passed is done again only when it, a
header it includes, or .clang-tidy changed.

usage: tidy.py ROOT BUILD[:BUILD...] JOBS [PATH PREFIX...]
"""

import concurrent.futures
import hashlib
import json
import pathlib
import re
import subprocess
import sys

TIDY = "clang-tidy-19"


def dependencies(build):
    """The files each object was compiled from, as ninja recorded them."""
    found, current = {}, None
    text = subprocess.run(["ninja", "-C", build, "-t", "deps"], check=True,
                          capture_output=True, text=True).stdout
    for line in text.splitlines():
        if line.startswith("    "):
            current.append((build / line.strip()).resolve())
        elif line:
            current = found.setdefault(line.split(":")[0], [])
    return found


def fingerprint(root, entry, files):
    digest = hashlib.sha256(entry["command"].encode())
    for path in [root / ".clang-tidy", *sorted(f for f in files if f.is_relative_to(root))]:
        digest.update(str(path.relative_to(root)).encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


def main():
    root, jobs = pathlib.Path(sys.argv[1]), int(sys.argv[3])
    builds = [pathlib.Path(build) for build in sys.argv[2].split(":")]
    prefixes = tuple(sys.argv[4:]) or ("",)
    matched, work = set(), []
    for build in builds:
        passed = build / "tidy-passed"
        passed.mkdir(exist_ok=True)
        deps = dependencies(build)
        for entry in json.loads((build / "compile_commands.json").read_text()):
            source = pathlib.Path(entry["file"])
            if source.is_relative_to(root / "build") or not source.is_relative_to(root):
                continue
            if source in matched or not str(source.relative_to(root)).startswith(prefixes):
                continue
            matched.add(source)
            output = re.search(r" -o (\S+)", entry["command"]).group(1)
            mark = passed / fingerprint(root, entry, deps.get(output, [source]))
            if not mark.exists():
                work.append((source, build, mark))
    if not matched:
        print(f"clang-tidy: no source file begins with {' or '.join(prefixes)}", file=sys.stderr)
        return 2

    def check(item):
        source, build, mark = item
        result = subprocess.run([TIDY, "--quiet", "-p", build, source],
                                capture_output=True, text=True)
        if result.returncode == 0:
            mark.touch()
        return source, result

    failed = 0
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        for source, result in pool.map(check, work):
            if result.returncode != 0:
                failed += 1
                print(f"{source.relative_to(root)}\n{result.stdout}", flush=True)
    print(f"clang-tidy: {len(matched)} files, {len(work)} of them changed, {failed} with findings", file=sys.stderr)
    return 1 if failed else 0


sys.exit(main())
