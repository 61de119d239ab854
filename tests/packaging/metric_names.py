"""Each metric that an alert, its test or the dashboard names is one that a relay, a service or `outbox verify`
shows: promtool takes any name, and an alert on one that is gone stays silent for ever.

usage: metric_names.py ROOT OUTBOX SERVICE_PAGE
"""
import pathlib
import re
import subprocess
import sys
import tempfile

NAME = re.compile(r"(?<![\w.])outbox_\w+")
USERS = ["prometheus/outbox.rules.yml", "prometheus/outbox.rules_test.yml", "grafana/outbox.json"]


def with_parts(name, kind):
    """A histogram is shown as its parts."""
    return {name + part for part in ("_bucket", "_sum", "_count")} if kind == "histogram" else {name}


def of_relay(root):
    rows = re.findall(r"^\| `(outbox_\w+)` \| (\w+) \|", (root / "docs/reference/metrics.md").read_text(), re.MULTILINE)
    return set().union(*(with_parts(*row) for row in rows))


def of_page(text):
    return set().union(*(with_parts(*row) for row in re.findall(r"^# TYPE (\w+) (\w+)$", text, re.MULTILINE)))


def of_verify(outbox):
    with tempfile.TemporaryDirectory(prefix="outbox-names-") as folder:
        place = pathlib.Path(folder)
        (place / "journal").write_text('{"id":"1"}\n')
        subprocess.run([outbox, "verify", "--produced", place / "journal", "--received", place / "journal",
                        "--textfile", place / "verify.prom"], check=True, stdout=subprocess.DEVNULL)
        return of_page((place / "verify.prom").read_text())


def main():
    root, outbox, service_page = pathlib.Path(sys.argv[1]), *sys.argv[2:]
    service = subprocess.run([service_page], check=True, stdout=subprocess.PIPE, text=True).stdout
    shown = {"relay": of_relay(root), "service": of_page(service), "verify": of_verify(outbox)}
    assert all(shown.values()), shown
    known = set().union(*shown.values())
    wrong, used = [], set()
    for file in USERS:
        named = set()
        for line in (root / "packaging" / file).read_text().splitlines():
            named.update(NAME.findall(line.split("#")[0] if file.endswith(".yml") else line))
        assert named, file
        wrong += [f"packaging/{file} names {name}, which nobody shows" for name in sorted(named - known)]
        used |= named
    print("\n".join(wrong) or f"{len(used)} names are those of metrics")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
