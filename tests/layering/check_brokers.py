"""Checks that each broker of the build is put through the conformance suite of sinks.

usage: check_brokers.py ROOT
Prints each broker without it and exits with 1 if there is one.
"""

import pathlib
import re
import sys

# Those that are tested elsewhere than in tests/brokers/NAME/conformance_test.cpp, and why.
ELSEWHERE = {
    # No server of its own: over each database that holds mailboxes.
    "mailbox": "tests/brokers/mailbox_conformance_test.cpp",
    # No server.
    "null": "tests/brokers/local_conformance_test.cpp",
    "stdout": "tests/brokers/local_conformance_test.cpp",
}
BACKEND = re.compile(r"outbox_backend\(broker (\w+)")


def problems(root):
    for folder in sorted((root / "src/brokers").iterdir()):
        build = folder / "CMakeLists.txt"
        found = BACKEND.search(build.read_text()) if build.is_file() else None
        if not found:
            continue
        name = found[1]
        usual = f"tests/brokers/{name}/conformance_test.cpp"
        place = ELSEWHERE.get(name, usual)
        test = root / place
        text = test.read_text() if test.is_file() else ""
        if name in ELSEWHERE and (root / usual).is_file():
            yield f"{name} has {usual}: take it out of ELSEWHERE"
        if not re.search(r"INSTANTIATE_TEST_SUITE_P\(\s*\w+,\s*SinkConformance\b", text):
            yield f"{name}: {place} instantiates no SinkConformance (tests/conformance/sink_suite.h)"
        elif name in ELSEWHERE and f"brokers/{name}/sink.h" not in text:
            yield f"{name}: {place} does not test its sink"


def main():
    found = list(problems(pathlib.Path(sys.argv[1])))
    for problem in found:
        print(problem)
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
