"""Checks that includes go one way (see ARCHITECTURE.md), that the middle names no backend, that the
core stays pure and that locks are those that the compiler checks.

usage: check_includes.py ROOT
Prints each violation as FILE:LINE: message, and each permission that nothing uses; exits with 1 if
there is one.
"""

import pathlib
import re
import sys

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^">]+)[">]')
SUFFIXES = {".h", ".cpp"}

# Layer -> the layers it may include besides itself, each of which it does. A layer is a folder under
# src/; "public" is include/outbox; a backend is one folder below databases/ or brokers/ and never
# another backend. The table of folders in ARCHITECTURE.md says the same (tests/docs/architecture.py).
ALLOWED = {
    "public": set(),
    "core": {"public"},
    "secrets": {"core", "public"},
    "net": {"secrets", "core", "public"},
    "aws": {"net", "core", "public"},
    "prepare": {"core", "public"},
    "claim": {"prepare", "net", "core", "public"},
    "schema": {"prepare", "net", "core", "public"},
    "codec": {"claim", "net", "core", "public"},
    "verify": {"public"},
    "tracing": {"net", "core", "public"},
    "relay": {"codec", "tracing", "core", "public"},
    "replay": {"relay", "codec", "core", "public"},
    "producer": {"core", "public"},
    "consumer": {"claim", "tracing", "core", "public"},
    "mailbox": {"consumer", "core", "public"},
    "saga": {"consumer", "core", "public"},
    "webhook": {"mailbox", "consumer", "net", "secrets", "core", "public"},
    "backend": {"webhook", "mailbox", "consumer", "claim", "core", "public"},
    "databases": {
        "backend", "webhook", "saga", "mailbox", "consumer", "producer", "replay", "relay", "claim", "secrets",
        "core", "public",
    },
    "brokers": {"backend", "webhook", "mailbox", "consumer", "aws", "net", "secrets", "core", "public"},
    "adapters": {"databases", "brokers", "consumer", "public"},
    "runtime": {"backend", "relay", "codec", "core", "public"},
    "admin": {"core", "public"},
    "dashboard": {"admin", "secrets", "core", "public"},
    # Neither wing: the build brings their descriptors.
    "apps": {
        "dashboard", "admin", "runtime", "backend", "webhook", "saga", "consumer", "replay", "relay", "tracing",
        "verify", "codec", "schema", "claim", "prepare", "net", "secrets", "core", "public",
    },
    "examples": {"public"},
}
BACKENDS = {"databases", "brokers"}

# All else knows no backend by name: neither in its code, nor in its SQL a catalog of one database.
# Messages and examples may. Names of backends are those of their folders, and of their libraries.
KNOW_BACKENDS = BACKENDS | {"public", "adapters", "examples"}
LIBRARIES = {"amqp", "libpq", "librdkafka", "postgresql", "pqxx", "rabbit"}
# Backends that are called by a word of the middle, of C++ or of Unix.
WORDS = {"mailbox", "memory", "null", "stdout", "webhook"}
CATALOG = re.compile(r"\b(?:pg|sqlite)_\w+")
WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")
COMMENT_OR_TEXT = re.compile(
    r"""(?P<comment>//[^\n]*|/\*.*?\*/)|R"(?P<tag>\w*)\(.*?\)(?P=tag)"|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])'""", re.S
)

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
# Clang's thread-safety analysis sees core/mutex.h alone.
UNCHECKED_LOCK = re.compile(
    r"\bstd::(?:(?:recursive_|timed_|shared_)*mutex|condition_variable(?:_any)?"
    r"|(?:unique|shared|scoped)_lock|lock_guard|atomic_flag)\b"
)
LOCKED = ("src", "apps")
CLOCK = re.compile(r"\b(system_clock|steady_clock|high_resolution_clock)::now\b|\bclock_gettime\b")
# The receiving side has the time and the randomness that it was given (src/consumer/env.h), so that it
# can be simulated. Excepted: who gives the machine's, who bounds a wait for a peer or for another
# thread of the process, and the clients of brokers, of which the simulation has a model.
OWN_TIME = re.compile(
    r"\b\w*[cC]lock::now\b|\bclock_gettime\b|\bstd::random_device\b|\bjulianday\('now'\)|\breal_env\(\)\."
)
RECEIVING = re.compile(r"src/(consumer|mailbox|saga)/|src/databases/\w+/(receive/|saga)")
OWN_TIME_ALLOWED = {
    "src/consumer/env.cpp",
    "src/consumer/idempotency.cpp",
    "src/databases/postgres/receive/watch.cpp",
    "src/databases/sqlite/receive/operator_sql.cpp",  # what operators' commands write is SQLite's time
    "src/mailbox/table_sink.cpp",
}

# What one file of a backend does for all of it: it owns the connections, or makes the library's calls.
CALLS = {
    "src/databases/postgres": (re.compile(r"\bPQ(connect|finish|reset)\w*\("), "client.cpp"),
    "src/databases/sqlite": (re.compile(r"\bsqlite3_\w+\("), "client.cpp"),
}


def call_problem(path, line):
    for folder, (call, file) in CALLS.items():
        if path.is_relative_to(folder) and path != pathlib.PurePath(folder, file):
            found = call.search(line)
            if found:
                return f"{found.group().rstrip('(')} is for {folder}/{file} to call"
    return None


def backends(root):
    folders = (folder for layer in BACKENDS for folder in (root / "src" / layer).glob("*/"))
    return {folder.name for folder in folders} - WORDS | LIBRARIES


def named_backends(text, names):
    """(line, message) of each line of a file of the middle that knows a backend."""
    def blank(match, with_texts):
        keep = match["comment"] is None and not with_texts
        return match[0] if keep else re.sub(r"[^\n]", "", match[0])

    code = COMMENT_OR_TEXT.sub(lambda match: blank(match, True), text).splitlines()
    with_texts = COMMENT_OR_TEXT.sub(lambda match: blank(match, False), text).splitlines()
    for number, (line, whole) in enumerate(zip(code, with_texts), 1):
        named = next((word for word in map(str.lower, WORD.findall(line)) if word in names), None)
        if named:
            yield number, f"{named} is a backend, which only its folder knows; its descriptor says what is special"
        elif catalog := CATALOG.search(whole):
            yield number, f"{catalog[0]} is of one database; its folder has its SQL"


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


def target_of(root, path, quote, name):
    """(layer, part) of what `path` includes, or None for a library's header."""
    beside = path.parent / name
    if quote == '"' and (root / beside).is_file():
        return layer_of(beside)
    return included_layer(root, name)


def problem(root, path, quote, name):
    layer, part = layer_of(path)
    if ".." in pathlib.PurePath(name).parts:
        return f"{name} climbs out of its folder; name the file from src/ or include/"
    target = target_of(root, path, quote, name)
    if target is None:
        return library_problem(path, layer, name)
    other, other_part = target
    if other == layer:
        if part and other_part and part != other_part:
            return f"backend {layer}/{part} includes another backend's {name}"
        return None
    if other not in ALLOWED[layer]:
        return f"{layer} may not include {name} (allowed: {', '.join(sorted(ALLOWED[layer]))})"
    return None


def sources(root):
    """(path below the root, its lines) of each file that has a layer."""
    for folder in ("include", "src", "apps", "examples"):
        for file in sorted((root / folder).rglob("*")):
            if file.suffix in SUFFIXES:
                yield file.relative_to(root), file.read_text().splitlines()


def line_problem(root, path, line):
    layer = layer_of(path)[0]
    include = INCLUDE.match(line)
    found = include and problem(root, path, *include.groups())
    if found:
        return found
    allowed = str(path) in IMPURE_ALLOWED
    if layer == "core" and CLOCK.search(line) and not allowed:
        return "core reads a clock"
    if OWN_TIME.search(line) and RECEIVING.match(str(path)) and str(path) not in OWN_TIME_ALLOWED:
        return "the receiving side takes time and randomness from consumer/env.h"
    lock = UNCHECKED_LOCK.search(line)
    if lock and path.parts[0] in LOCKED and not allowed:
        return f"{lock[0]}: no compiler sees what it guards; take those of core/mutex.h"
    return call_problem(path, line)


def violations(root):
    names = backends(root)
    for path, lines in sources(root):
        layer = layer_of(path)[0]
        if layer not in ALLOWED:
            yield f"{path}:1: folder {layer} has no place in the layering"
            continue
        for number, line in enumerate(lines, 1):
            found = line_problem(root, path, line)
            if found:
                yield f"{path}:{number}: {found}"
        if layer not in KNOW_BACKENDS:
            for number, found in named_backends("\n".join(lines), names):
                yield f"{path}:{number}: {found}"


def unused(root):
    """The permissions of ALLOWED that nothing uses, of layers that there are."""
    used = {}
    for path, lines in sources(root):
        includes = used.setdefault(layer_of(path)[0], set())
        for include in filter(None, map(INCLUDE.match, lines)):
            target = target_of(root, path, *include.groups())
            includes.update(target[:1] if target else ())
    for layer, includes in sorted(used.items()):
        for other in sorted(ALLOWED.get(layer, set()) - includes):
            yield f"{layer} may include {other} (ALLOWED in check_includes.py), and never does"


def main():
    root = pathlib.Path(sys.argv[1]).resolve()
    if not (root / "src/core").is_dir():
        sys.exit(f"{root} has no src/core: nothing would be checked")
    found = [*violations(root), *unused(root)]
    for line in found:
        print(line)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
