"""Checks that includes go one way (see ARCHITECTURE.md) and that the core stays pure.

usage: check_includes.py ROOT
Prints each violation as FILE:LINE: message and exits with 1 if there is one.
"""

import pathlib
import re
import sys

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^">]+)[">]')
SUFFIXES = {".h", ".cpp"}

# Layer -> the layers it may include besides itself. A layer is a folder under src/; "public" is
# include/outbox; a backend is one folder below databases/ or brokers/ and never another backend.
MIDDLE = {"core", "prepare", "claim", "schema", "codec", "secrets", "net", "aws", "tracing", "verify", "relay", "replay", "producer", "consumer", "mailbox", "saga", "webhook", "backend"}
ALLOWED = {
    "public": set(),
    "core": {"public"},
    "prepare": {"core", "public"},
    "claim": {"prepare", "net", "secrets", "core", "public"},
    "schema": {"prepare", "net", "secrets", "core", "public"},
    "codec": {"claim", "net", "core", "public"},
    "secrets": {"core", "public"},
    "net": {"secrets", "core", "public"},
    "aws": {"net", "secrets", "core", "public"},
    "tracing": {"net", "core", "public"},
    "verify": {"core", "public"},
    "relay": {"codec", "tracing", "core", "public"},
    "replay": {"relay", "codec", "core", "public"},
    "producer": {"secrets", "core", "public"},
    "consumer": {"claim", "tracing", "secrets", "core", "public"},
    "mailbox": {"consumer", "claim", "secrets", "core", "public"},
    "saga": {"consumer", "core", "public"},
    "webhook": {"mailbox", "consumer", "net", "secrets", "core", "public"},
    "backend": {"claim", "webhook", "mailbox", "consumer", "core", "public"},
    "databases": MIDDLE - {"codec", "net", "aws", "prepare", "schema", "tracing", "verify"} | {"public"},
    "brokers": {"backend", "webhook", "mailbox", "consumer", "claim", "aws", "net", "secrets", "core", "public"},
    "adapters": MIDDLE - {"net", "aws", "prepare", "schema"} | {"databases", "brokers", "public"},
    "runtime": {"backend", "relay", "tracing", "codec", "core", "public"},
    "admin": {"runtime", "backend", "relay", "codec", "core", "public"},
    "dashboard": {"admin", "secrets", "core", "public"},
}
BACKENDS = {"databases", "brokers"}

# The core has no clock, thread, socket, file or randomness.
IMPURE_HEADERS = {
    "condition_variable", "cstdio", "ctime", "filesystem", "fstream", "future", "iostream",
    "mutex", "random", "semaphore", "shared_mutex", "stop_token", "syncstream", "thread",
}
PURE_LIBRARIES = ("fmt/", "nlohmann/", "xxhash.h")
# Beside that it has what all others use: the machine's clocks, the last words of a check, the mutex.
IMPURE_ALLOWED = {
    "src/core/system_clock.h": {"ctime"},
    "src/core/check.cpp": {"cstdio"},
    "src/core/mutex.h": {"condition_variable", "mutex"},
}
CLOCK = re.compile(r"\b(system_clock|steady_clock|high_resolution_clock)::now\b|\bclock_gettime\b")


def layer_of(path):
    """(layer, part) of a file, by its path below the root; part is a backend's folder."""
    parts = path.parts
    if parts[:2] == ("include", "outbox"):
        return "public", None
    if parts[0] == "src":
        return parts[1], parts[2] if parts[1] in BACKENDS and len(parts) > 3 else None
    return parts[0], None


def included_layer(root, name):
    """(layer, part) of an include of ours, or None for a library's header."""
    if name.startswith("outbox/"):
        return "public", None
    first = name.split("/")[0]
    if first in ALLOWED or (root / "src" / name).is_file():
        return layer_of(pathlib.PurePath("src", name))
    if first in {"apps", "examples", "tests", "bench", "src", "include"}:
        return first, None
    return None


def is_standard(name):
    return "." not in name and "/" not in name


def library_problem(path, layer, name):
    if layer == "public" and "adapters" not in path.parts and not is_standard(name):
        return f"a public header outside adapters/ includes the library header {name}"
    if layer == "core":
        if is_standard(name) and name in IMPURE_HEADERS and name not in IMPURE_ALLOWED.get(str(path), ()):
            return f"core includes <{name}>, which does I/O or keeps time or threads"
        if not is_standard(name) and not name.startswith(PURE_LIBRARIES):
            return f"core includes the library header {name}"
    return None


def problem(root, path, quote, name):
    layer, part = layer_of(path)
    if ".." in pathlib.PurePath(name).parts:
        return f"{name} climbs out of its folder; name the file from src/ or include/"
    beside = path.parent / name
    if quote == '"' and (root / beside).is_file():
        target = layer_of(beside)
    else:
        target = included_layer(root, name)
    if layer == "examples":
        ours = target is not None and target[0] not in ("public", "examples")
        return f"an example includes {name}; it may use include/outbox only" if ours else None
    if target is None:
        return library_problem(path, layer, name)
    if layer == "apps":
        return None
    other, other_part = target
    if other == layer:
        if part and other_part and part != other_part:
            return f"backend {layer}/{part} includes another backend's {name}"
        return None
    if other not in ALLOWED[layer]:
        return f"{layer} may not include {name} (allowed: {', '.join(sorted(ALLOWED[layer]))})"
    return None


def violations(root):
    for folder in ("include", "src", "apps", "examples"):
        for file in sorted((root / folder).rglob("*")):
            if file.suffix not in SUFFIXES:
                continue
            path = file.relative_to(root)
            layer = layer_of(path)[0]
            if layer not in ALLOWED and layer not in ("apps", "examples"):
                yield f"{path}:1: folder {layer} has no place in the layering"
                continue
            for number, line in enumerate(file.read_text().splitlines(), 1):
                include = INCLUDE.match(line)
                found = include and problem(root, path, *include.groups())
                if not found and layer == "core" and CLOCK.search(line) and str(path) not in IMPURE_ALLOWED:
                    found = "core reads a clock"
                if found:
                    yield f"{path}:{number}: {found}"


def main():
    root = pathlib.Path(sys.argv[1]).resolve()
    if not (root / "src/core").is_dir():
        sys.exit(f"{root} has no src/core: nothing would be checked")
    found = list(violations(root))
    for line in found:
        print(line)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
