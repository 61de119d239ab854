"""What the benchmarks share: servers of their own, the relay as a process, what a process costs."""
import contextlib
import json
import os
import pathlib
import re
import signal
import socket
import statistics
import subprocess
import sys
import time
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = ROOT / "build" / "release"
OUTBOX = BUILD / "outbox"
BENCH_KAFKA = BUILD / "bench_kafka"
PARTITIONS = 12
PAYLOAD_BYTES = 200
TICKS = os.sysconf("SC_CLK_TCK")
EVENTS = "outbox_events (id, aggregate_type, aggregate_id, event_type, payload)"
TOPIC = "bench-events"  # of what `fill` writes


def run(*command, **options):
    return subprocess.run([str(c) for c in command], check=True, text=True,
                          stdout=subprocess.PIPE, **options).stdout


def say(text):
    print(f"== {text}", file=sys.stderr, flush=True)


class Servers:
    """PostgreSQL, and others that are asked for, in a private folder; all are ended in `stop`."""

    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        self.started = set()
        self.url = self.start("postgres")
        self.bootstrap = None

    def start(self, name, **environment):
        self.started.add(name)
        out = run(ROOT / "script" / "servers" / name, "start", "--dir", self.folder / name,
                  env={**os.environ, **environment})
        if name == "postgres":
            os.environ["PGPASSFILE"] = str(self.folder / "postgres" / "data" / "pgpass")
        return out.strip().splitlines()[-1]

    def kafka(self):
        if self.bootstrap is None:
            self.bootstrap = self.start("kafka", KAFKA_JVM="", KAFKA_HEAP="1g")
        return self.bootstrap

    def stop(self):
        for name in self.started:
            subprocess.run([ROOT / "script" / "servers" / name, "stop", "--dir",
                            self.folder / name], stdout=subprocess.DEVNULL, check=False)

    def pid(self, name):
        return int((self.folder / name / "pid").read_text().split()[0])

    def restart(self, name):
        run(ROOT / "script" / "servers" / name, "stop", "--dir", self.folder / name)
        self.start(name)

    def sql(self, text, url=None):
        return run("psql", url or self.url, "-XqAt", "-v", "ON_ERROR_STOP=1", "-c", text).strip()

    def empty_database(self, name):
        self.sql(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")
        self.sql(f"CREATE DATABASE {name}")
        return "postgresql://" + re.sub(r"/[^/?]*(\?|$)", rf"/{name}\1", self.url.split("://")[1])

    def database(self, name, *options):
        """With the outbox in it, laid out as `outbox migrate` is told by the options."""
        url = self.empty_database(name)
        run(OUTBOX, "migrate", "--db", url, *options)
        return url

    def fill(self, url, rows, payload_bytes=PAYLOAD_BYTES, rows_per_transaction=100_000, into=EVENTS, keys=10_000):
        """Events with the numbers 1 to `rows` in their payloads, in order, by one writer. It waits for
        no flush but the last one: what is measured begins behind that. Nothing makes a payload smaller
        where it is stored: its text repeats nothing."""
        mark = "&" if "?" in url else "?"
        self.sql(f"""
            DO $$
            DECLARE
                filling text := (SELECT left(string_agg(md5(n::text), ''), {payload_bytes - 30})
                                 FROM generate_series(1, {payload_bytes // 32 + 1}) n);
            BEGIN
                FOR lowest IN 1..{rows} BY {rows_per_transaction} LOOP
                    INSERT INTO {into}
                    SELECT lpad(to_hex(g), 32, '0')::uuid, 'Bench', 'k' || (g % {keys}), 'Filled',
                           jsonb_build_object('n', g, 'fill', filling)
                    FROM generate_series(lowest, least(lowest + {rows_per_transaction} - 1, {rows})) g;
                    COMMIT;
                END LOOP;
            END $$""", f"{url}{mark}options=-csynchronous_commit%3Doff")
        self.sql(f"VACUUM (ANALYZE) {into.split()[0]}", url)
        self.sql("CHECKPOINT", url)


def cpu_s(pid):
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def memory_mb(pid):
    text = pathlib.Path(f"/proc/{pid}/status").read_text()
    return int(re.search(r"VmHWM:\s+(\d+)", text).group(1)) / 1024


def server_cpu_s(folder):
    """Of all processes of the PostgreSQL in `folder`, those that have ended included."""
    pid = int((pathlib.Path(folder) / "postgres" / "pid").read_text().split()[0])
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    total = sum(int(field) for field in fields[11:15]) / TICKS
    for child in pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        try:
            total += cpu_s(child)
        except (FileNotFoundError, ProcessLookupError):
            pass
    return total


class Relay:
    """A relay process with its metrics page."""

    def __init__(self, url, sink, folder, *options):
        self.log = open(pathlib.Path(folder) / "relay.log", "a", encoding="utf-8")
        self.port = free_port()
        self.process = subprocess.Popen(
            [str(OUTBOX), "relay", "--from", url, "--to", sink, "--admin",
             f"127.0.0.1:{self.port}", *options],
            stdout=subprocess.DEVNULL, stderr=self.log)
        self.pid = self.process.pid

    def published(self):
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/metrics", timeout=2) as page:
                text = page.read().decode()
        except OSError:
            return 0
        return sum(float(line.rsplit(" ", 1)[1]) for line in text.splitlines()
                   if line.startswith("outbox_published_total"))

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(timeout=60)
        self.log.close()
        if self.process.returncode != 0:
            raise RuntimeError(f"the relay ended with {self.process.returncode}: {self.log.name}")


def drain(servers, folder, rows, sink, payload_bytes=PAYLOAD_BYTES, options=(), *, layout="delete", keys=10_000,
          hold_snapshot=False):
    """Relay stopped, rows inserted, relay started: rate between 10 % and 90 % of the rows."""
    url = servers.database("bench", "--after-publish", layout)
    left = "outbox_events" if layout == "delete" else "outbox_status WHERE status IN ('PENDING', 'RETRYING')"
    with held_snapshot(url) if hold_snapshot else contextlib.nullcontext():
        servers.fill(url, rows, payload_bytes, min(rows, 100_000) if payload_bytes < 10_000 else 500, keys=keys)
        relay = Relay(url, sink, folder, *options)
        samples = []
        deadline = time.monotonic() + 600
        while True:
            count = relay.published()
            samples.append((time.monotonic(), count))
            if count >= rows:
                break
            if time.monotonic() > deadline or relay.process.poll() is not None:
                raise RuntimeError(f"drained {count:.0f} of {rows} rows; see {relay.log.name}")
            time.sleep(0.02)
        while servers.sql(f"SELECT EXISTS (SELECT FROM {left})", url) == "t":
            time.sleep(0.05)
        used, peak = cpu_s(relay.pid), memory_mb(relay.pid)
        relay.stop()
    return {"per_s": round(rate_between(samples, rows)), "relay_cpu_s_per_million": round(used * 1e6 / rows, 2),
            "relay_peak_mb": round(peak, 1)}


@contextlib.contextmanager
def held_snapshot(url):
    """Of a transaction that is open meanwhile: the server cannot clear away what it may still see."""
    with subprocess.Popen(["psql", url, "-XqAt"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as session:
        session.stdin.write("BEGIN ISOLATION LEVEL REPEATABLE READ;\nSELECT count(*) FROM outbox_events;\n")
        session.stdin.flush()
        session.stdout.readline()
        yield
        session.stdin.close()


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def median_of(runs):
    return {key: statistics.median(run[key] for run in runs) for key in runs[0]}


def delete_and_create(servers, topic):
    subprocess.run([str(BENCH_KAFKA), "delete", servers.kafka(), topic], check=False,
                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    run(BENCH_KAFKA, "create", servers.kafka(), topic, PARTITIONS)


def paced_sql(into="outbox_events (aggregate_type, aggregate_id, event_type, payload)",
              values="'Paced', 'k' || :k, 'Paced'", more=""):
    """One event, for pgbench; its payload says when it was made."""
    return f"""\\set k random(1, 10000)
INSERT INTO {into} VALUES ({values}, jsonb_build_object({more}'at_us',
 (extract(epoch FROM clock_timestamp()) * 1000000)::bigint, 'fill', repeat('x', 160)));
"""


def receive_paced(servers, topic, warm_up):
    """Receipts until none came for 8 s; latencies of the first `warm_up` seconds do not count: a
    broker that has just started compiles its code then."""
    return subprocess.Popen([str(BENCH_KAFKA), "receive", servers.kafka(), topic,
                             "1000000000", "8000", str(warm_up * 1000)],
                            stdout=subprocess.PIPE, text=True)


def latency_of_kafka_alone(servers, rate, warm_up, seconds):
    topic = "paced-alone"
    delete_and_create(servers, topic)
    receiver = receive_paced(servers, topic, warm_up)
    time.sleep(3)
    run(BENCH_KAFKA, "pace", servers.kafka(), topic, rate, warm_up + seconds)
    out, _ = receiver.communicate(timeout=120)
    received = json.loads(out)
    return {"kafka_alone_p50_ms": received["p50_ms"], "kafka_alone_p99_ms": received["p99_ms"]}


def insert_latency(logs, warm_up):
    """Of each transaction from its start to the answer to its commit, without the first `warm_up`
    seconds; from pgbench's log, whose times begin when a transaction was due."""
    rows = [[int(field) for field in line.split()]
            for log in logs for line in log.read_text(encoding="ascii").splitlines()]
    begin = min(row[4] for row in rows) + warm_up
    took_us = sorted(row[2] - row[6] for row in rows if row[4] >= begin)
    return {f"insert_p{percent}_ms": round(took_us[len(took_us) * percent // 100] / 1000, 2)
            for percent in (50, 99)}


def answers(port):
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def cpu_s_of_group(pid):
    """A process and its living children."""
    total = cpu_s(pid)
    for child in pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        try:
            total += cpu_s(child)
        except FileNotFoundError:
            pass  # it has ended
    return total


def rate_between(samples, total):
    """Per second, between a tenth and nine tenths of `total`, of samples (seconds, count)."""
    inside = [s for s in samples if total * 0.1 <= s[1] <= total * 0.9]
    if len(inside) < 2:
        inside = samples
    return (inside[-1][1] - inside[0][1]) / max(inside[-1][0] - inside[0][0], 1e-6)


def copy_per_s(url, rows):
    """How fast the server hands the table out."""
    started = time.monotonic()
    subprocess.run(["psql", url, "-Xqc", "COPY outbox_events TO STDOUT (FORMAT binary)"],
                   stdout=subprocess.DEVNULL, check=True)
    return round(rows / (time.monotonic() - started))


def librdkafka_alone(servers, rows, payload_bytes, *headers):
    """What the client library alone reaches with as many records."""
    delete_and_create(servers, "bench-limit")
    return json.loads(run(BENCH_KAFKA, "produce", servers.kafka(), "bench-limit", rows, payload_bytes, *headers))
