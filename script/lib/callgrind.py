"""Instructions by stage of the relay, from what callgrind writes.

The format is that of valgrind's manual ("Callgrind Format Specification"): `ob=`, `fl=`, `fi=`, `fe=`
and `fn=` say where the lines of cost below belong; a line `calls=` is followed by one with the cost of
what was called, which is counted there. A name is written once, `(7) name`, and then as `(7)`.
"""
import collections
import re

# The first that fits. `file` for code of ours, `object` for libraries, `function` for what all call.
STAGES = [
    ("libpq", "object", r"libpq\.so"),
    ("librdkafka", "object", r"librdkafka"),
    ("compression", "object", r"lib(lz4|zstd|snappy|z)\.so"),
    ("read", "file", r"/src/databases/\w+/(source|stream)/"),
    ("record", "file", r"/src/databases/\w+/record/"),
    ("database client", "file", r"/src/databases/"),
    ("publish", "file", r"/src/(brokers|sinks)/"),
    ("format", "file", r"/src/codec/"),
    ("relay", "file", r"/src/relay/"),
    ("metrics and logs", "file", r"/src/(runtime|admin)/"),
    ("core", "file", r"/src/|/include/outbox/"),
    ("templates", "file", r"/include/"),  # the standard library's and others', compiled into ours
    ("allocation", "function", r"^_*(malloc|free|calloc|realloc|int_malloc|int_free|tcache|unlink_chunk"
                               r"|operator (new|delete))"),
    ("copies", "function", r"mem(cpy|move|set|cmp|chr)|str(len|cmp|chr)"),
    ("locks", "function", r"pthread|futex|lll_"),
    ("standard library", "object", r"libstdc\+\+"),
    ("C library", "object", r"libc\.so|ld-linux"),
]


def stage_of(place):
    for name, part, pattern in STAGES:
        if re.search(pattern, place[part]):
            return name
    return "other"


def by_stage(path):
    names = collections.defaultdict(dict)
    now = {"object": "", "file": "", "function": ""}
    costs = collections.Counter()
    part = {"ob": "object", "fl": "file", "fi": "file", "fe": "file", "fn": "function"}
    header = re.compile(r"(c?)(ob|fl|fi|fe|fn)=(?:\((\d+)\))?\s*(.*)")
    called = False
    with open(path, encoding="utf-8", errors="replace") as lines:
        for line in lines:
            if line.startswith("calls="):
                called = True
            elif match := header.match(line):
                callee, kind, number, name = match.groups()
                known = names[part[kind]]
                if number and name:
                    known[number] = name
                if not callee:
                    now[part[kind]] = name or known.get(number, "")
            elif line[0].isdigit() or line[0] in "+-*":
                if not called:
                    costs[tuple(now.values())] += int(line.split()[1])
                called = False
    out = collections.Counter()
    for place, cost in costs.items():
        out[stage_of(dict(zip(now, place)))] += cost
    return out
