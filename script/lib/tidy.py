"""Runs clang-tidy over the files of some builds, each in the first that has it; a file that passed is done again only when it, a
header it includes, .clang-tidy or the version changed.

usage: tidy.py CLANG_TIDY ROOT BUILD[:BUILD...] JOBS [PATH PREFIX...]
"""

import concurrent.futures
import functools
import hashlib
import json
import pathlib
import re
import subprocess
import sys

INCLUDE = re.compile(r'^\s*#\s*include\s*["<]([^">]+)[">]', re.MULTILINE)


@functools.cache
def includes_of(path):
    return INCLUDE.findall(path.read_text(errors="replace"))


def files_of(root, entry):
    """The source file and what it includes of ours, also by what it includes. No compiler need have run."""
    folders = [pathlib.Path(folder) for folder in re.findall(r" -I(\S+)", entry["command"])]
    found, waiting = set(), [pathlib.Path(entry["file"])]
    while waiting:
        path = waiting.pop()
        if path in found or not path.is_relative_to(root):
            continue
        found.add(path)
        for name in includes_of(path):
            there = (folder / name for folder in (path.parent, *folders))
            waiting += [candidate.resolve() for candidate in there if candidate.is_file()][:1]
    return found


def fingerprint(root, entry, files):
    digest = hashlib.sha256(entry["command"].encode())
    for path in [root / ".clang-tidy", root / "script/lib/tidy_requirements.txt", *sorted(files)]:
        digest.update(str(path.relative_to(root)).encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


def main():
    tidy, root, jobs = sys.argv[1], pathlib.Path(sys.argv[2]), int(sys.argv[4])
    builds = [pathlib.Path(build) for build in sys.argv[3].split(":")]
    prefixes = tuple(sys.argv[5:]) or ("",)
    matched, work = set(), []
    for build in builds:
        passed = build / "tidy-passed"
        passed.mkdir(exist_ok=True)
        for entry in json.loads((build / "compile_commands.json").read_text()):
            source = pathlib.Path(entry["file"])
            if source.is_relative_to(root / "build") or not source.is_relative_to(root):
                continue
            if source in matched or not str(source.relative_to(root)).startswith(prefixes):
                continue
            matched.add(source)
            mark = passed / fingerprint(root, entry, files_of(root, entry))
            if not mark.exists():
                work.append((source, build, mark))
    if not matched:
        print(f"clang-tidy: no source file begins with {' or '.join(prefixes)}", file=sys.stderr)
        return 2

    def check(item):
        source, build, mark = item
        result = subprocess.run([tidy, "--quiet", "-p", build, source],
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
