"""`script/bench --peers`: the relay beside other relays, on one PostgreSQL and one Kafka, in turns.

Each turn is the same for all: an own database, the same events, a topic that is empty, what arrives
there watched from outside, and every record read back at the end. What a turn measured goes into one
JSON file; `peers_page` makes the page of it.
"""
import json
import os
import pathlib
import platform
import re
import subprocess
import sys
import tempfile
import threading
import time

import peers_page
from measuring import (BENCH_KAFKA, OUTBOX, PAYLOAD_BYTES, ROOT, TOPIC, Servers, copy_per_s, cpu_s, cpu_s_of_group,
                       delete_and_create, insert_latency, latency_of_kafka_alone, librdkafka_alone, memory_mb,
                       paced_sql, rate_between, receive_paced, run, say, server_cpu_s)
from peer_relays import DATABASE, PROFILES, Debezium, Failed, Ours, Outboxx, outboxx_version

PATIENCE_S = 300  # for whatever a relay has to do
QUIET_S = 2  # after which nothing more is expected in a topic
GIVEN_UP_S = 20  # the same, where events are missing
KILL_AT = 0.4  # of the rows
PACE = 1_000

# As large as what the relay writes beside the payload in its format `raw`.
HEADERS = ("id=00000000-0000-0000-0000-0000000f4240", "type=Filled", "aggregate_type=Bench",
           "occurred_at=2026-01-01T00:00:00.000000Z", "tenant_id=default")


class Watch:
    """What has arrived in the topic, as time goes on, seen from outside."""

    def __init__(self, bed):
        self.process = subprocess.Popen([str(BENCH_KAFKA), "watch", bed.servers.kafka(), TOPIC],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.samples = []  # (seconds of time.monotonic(), records)
        self.bed = bed
        self.relay = None  # whose costs count from the first record on
        self.cost_at_first = None
        self.thread = threading.Thread(target=self.read, daemon=True)
        self.thread.start()

    def read(self):
        for line in self.process.stdout:
            at, records = line.split()
            self.samples.append((float(at), int(records)))
            if self.relay and self.cost_at_first is None and int(records):
                try:
                    self.cost_at_first = (int(records), self.bed.cost(self.relay.pid()))
                except OSError:
                    pass  # it has ended, which `until` says

    def records(self):
        return self.samples[-1][1] if self.samples else 0

    def check(self):
        if self.process.poll() is not None:
            raise Failed("the topic could not be watched any more")

    def until(self, records, relay, each=lambda: None):
        deadline = time.monotonic() + PATIENCE_S
        while self.records() < records:
            self.check()
            if time.monotonic() > deadline:
                raise Failed(f"{self.records()} of {records} records within {PATIENCE_S} s")
            relay.check()
            each()
            time.sleep(0.01)

    def until_quiet(self):
        before = None
        while self.records() != before:
            before = self.records()
            time.sleep(QUIET_S)

    def stop(self):
        self.process.stdin.close()
        self.thread.join()
        self.process.wait()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()


class Bed:
    """The servers that all share."""

    def __init__(self, servers, folder, arguments):
        self.servers, self.folder, self.arguments = servers, pathlib.Path(folder), arguments
        self.rows = arguments.rows
        servers.kafka()
        servers.sql("CREATE ROLE relay SUPERUSER LOGIN REPLICATION PASSWORD 'test'")

    def warm_up(self, peers):
        """A broker that has just started compiles its code while it works: not in the first turns."""
        for peer in peers:
            say(f"a drain that does not count: {peer.name}")
            try:
                backlog(self, peer)
            except (Failed, subprocess.SubprocessError, OSError) as error:
                say(f"it failed, as the first turn will tell: {error}")
            finally:
                peer.stop()
            self.drop_slots()

    def cost(self, pid):
        """CPU seconds so far: of the relay, the database server, the broker."""
        return (cpu_s(pid), server_cpu_s(self.folder), cpu_s_of_group(self.servers.pid("kafka")))

    def watch(self):
        return Watch(self)

    def drop_slots(self):
        """Of relays that have ended; the server notices it a moment later."""
        deadline = time.monotonic() + 30
        while self.servers.sql("SELECT count(pg_drop_replication_slot(slot_name)) FROM pg_replication_slots "
                               "WHERE NOT active; SELECT count(*) FROM pg_replication_slots").split()[-1] != "0":
            if time.monotonic() > deadline:
                raise RuntimeError("a relay was stopped, and 30 s later its replication slot is still in use")
            time.sleep(0.1)

    def fresh_topic(self):
        delete_and_create(self.servers, TOPIC)

    def audit(self, count):
        return json.loads(subprocess.run([str(BENCH_KAFKA), "audit", self.servers.kafka(), TOPIC, str(count)],
                                         stdout=subprocess.PIPE, text=True, check=True).stdout)

    def read_back(self, count, watch):
        """Every record, once no more come; again, if some are missing and more come after all."""
        while True:
            watch.until_quiet()
            found = self.audit(count)
            deadline = time.monotonic() + (GIVEN_UP_S if found["missing"] else 0)
            # Not what was there before the audit: more may have come while it read.
            while watch.records() == found["records"] and time.monotonic() < deadline:
                time.sleep(0.05)
            if watch.records() == found["records"]:
                return found


class Memory:
    """The most that a process had, by all that it maps (RSS) and by its share of it (PSS), in MB."""

    def __init__(self):
        self.rss = self.pss = 0
        self.looked = 0

    def look(self, pid, now=False):
        if time.monotonic() - self.looked < 0.5 and not now:
            return
        self.looked = time.monotonic()
        text = pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text()
        self.pss = max(self.pss, int(re.search(r"^Pss:\s+(\d+)", text, re.MULTILINE).group(1)) / 1024)
        self.rss = max(self.rss, memory_mb(pid))

    def figures(self):
        return {"rss_mb": round(self.rss, 1), "pss_mb": round(self.pss, 1)}


def checked(bed, count, watch, *, in_order):
    found = bed.read_back(count, watch)
    figures = {"records": found["records"] - found["strange"], "missing": found["missing"],
               "repeats": found["repeats"]}
    if found["missing"]:
        figures |= {key: found[key] for key in ("first_missing", "last_missing")}
    if in_order:
        figures["out_of_order"] = found["out_of_order"]
    return figures


def drain(bed, peer, rows, rows_per_transaction):
    """Relay stopped, rows inserted, relay started. CPU counts from the first record on until nothing is
    left to be done: the start of a JVM is none of it."""
    peer.prepare()
    bed.servers.fill(peer.url, rows, PAYLOAD_BYTES, rows_per_transaction, peer.columns)
    memory = Memory()
    with bed.watch() as watch:
        started = time.monotonic()
        watch.relay = peer
        peer.start()
        watch.until(rows, peer, lambda: memory.look(peer.pid()))
        delivered = time.monotonic()
        while not peer.finished():
            if time.monotonic() > delivered + PATIENCE_S:
                raise Failed(f"all was delivered, and {PATIENCE_S} s later not all recorded")
            time.sleep(0.1)
        finished = time.monotonic()
        memory.look(peer.pid(), now=True)
        first, before = watch.cost_at_first
        after = bed.cost(peer.pid())
        relay, server, broker = ((end - begin) * 1e6 / max(rows - first, 1) for begin, end in zip(before, after))
        figures = {"per_s": round(rate_between(watch.samples, rows)),
                   "first_record_s": round(next(at for at, n in watch.samples if n) - started, 2),
                   "finished_behind_last_record_s": round(finished - delivered, 2),
                   "relay_cpu_s_per_million": round(relay, 2), "server_cpu_s_per_million": round(server, 2),
                   "broker_cpu_s_per_million": round(broker, 2),
                   "all_cpu_s_per_million": round(relay + server + broker, 2), **memory.figures(),
                   **checked(bed, rows, watch, in_order=True)}
    return figures


def backlog(bed, peer):
    return drain(bed, peer, bed.rows, 100)


def single(bed, peer):
    return drain(bed, peer, bed.rows, 1)


def latency(bed, peer):
    """One event for each transaction, PACE a second: from the INSERT to the receipt."""
    warm_up, seconds = bed.arguments.times
    peer.prepare()
    bed.servers.sql("CREATE SEQUENCE bench_numbers", peer.url)
    script = bed.folder / "paced.sql"
    script.write_text(paced_sql(peer.columns, peer.paced_values, "'n', nextval('bench_numbers'), "), encoding="utf-8")
    for old in bed.folder.glob("paced-log*"):
        old.unlink()
    memory = Memory()
    with bed.watch() as watch:
        peer.start()
        peer.mark(watch)
    receiver = receive_paced(bed.servers, TOPIC, warm_up)
    time.sleep(3)
    before = bed.cost(peer.pid())
    log = bed.folder / "paced-log"
    output = run("pgbench", "-n", "-f", script, "-R", PACE, "-c", 8, "-j", 1, "-T", warm_up + seconds, "-M",
                 "prepared", "-l", "--log-prefix", log, peer.url)
    relay, server, broker = ((end - begin) / (warm_up + seconds)
                             for begin, end in zip(before, bed.cost(peer.pid())))
    memory.look(peer.pid(), now=True)
    received = json.loads(receiver.communicate(timeout=PATIENCE_S)[0])
    sent = int(re.search(r"actually processed: (\d+)", output).group(1))
    with bed.watch() as watch:
        return {"written_per_s": round(sent / (warm_up + seconds)), "p50_ms": received["p50_ms"], "p99_ms": received["p99_ms"], "relay_cores": round(relay, 3),
                "all_cores": round(relay + server + broker, 3),
                **insert_latency(bed.folder.glob("paced-log*"), warm_up), **memory.figures(),
                **checked(bed, sent, watch, in_order=False)}


def kill(bed, peer):
    """SIGKILL in mid-drain, and started again at once."""
    peer.prepare()
    bed.servers.fill(peer.url, bed.rows, PAYLOAD_BYTES, 100, peer.columns)
    with bed.watch() as watch:
        peer.start()
        watch.until(bed.rows * KILL_AT, peer)
        killed = time.monotonic()
        peer.kill()
        peer.start()
        watch.until(bed.rows, peer)
        found = checked(bed, bed.rows, watch, in_order=True)
        samples = list(watch.samples)
    return {"resumed_s": resumed(samples, killed), **found,
            "curve": [[round(at - killed, 2), records] for at, records in thinned(samples, killed - 1, killed + 8)]}


def resumed(samples, killed):
    """From the kill to the first record after the pause: what was on its way to the broker still
    arrives for a moment."""
    paused = False
    for (_, before), (at, records) in zip(samples, samples[1:]):
        if at > killed and records == before:
            paused = True
        elif at > killed and paused:
            return round(at - killed, 2)
    raise Failed("nothing was delivered after SIGKILL")


def thinned(samples, begin, end, step=0.05):
    last = None
    for at, records in samples:
        if begin <= at <= end and (last is None or at - last >= step):
            last = at
            yield at, records


def recvlogical_per_s(bed, rows, rows_per_transaction):
    """How fast the server decodes its log, by its own program into a file."""
    url = bed.servers.database(DATABASE)
    bed.servers.sql("CREATE PUBLICATION bench FOR TABLE outbox_events", url)
    bed.servers.sql("SELECT pg_create_logical_replication_slot('bench', 'pgoutput')", url)
    bed.servers.fill(url, rows, PAYLOAD_BYTES, rows_per_transaction)
    end = bed.servers.sql("SELECT pg_current_wal_flush_lsn()", url)
    target = bed.folder / "received"
    started = time.monotonic()
    run("pg_recvlogical", "-d", url, "--slot", "bench", "--start", "--no-loop", "--endpos", end, "-f", target, "-o",
        "proto_version=1", "-o", "publication_names=bench", stderr=subprocess.DEVNULL)
    took = time.monotonic() - started
    target.unlink()
    bed.drop_slots()
    return round(rows / took)


def limits(bed):
    """What the machine allows, in this turn."""
    url = bed.servers.database(DATABASE)
    bed.servers.fill(url, bed.rows, PAYLOAD_BYTES, 100)
    payload = round(float(bed.servers.sql("SELECT avg(octet_length(payload::text)) FROM outbox_events", url)))
    plain, headed = (librdkafka_alone(bed.servers, bed.rows, payload, *headers) for headers in ((), HEADERS))
    return {"copy_per_s": copy_per_s(url, bed.rows),
            "recvlogical_100_per_s": recvlogical_per_s(bed, bed.rows, 100),
            "recvlogical_1_per_s": recvlogical_per_s(bed, bed.rows, 1),
            "librdkafka_per_s": headed["per_s"], "librdkafka_cpu_s_per_million": headed["cpu_s_per_million"],
            "librdkafka_without_headers_per_s": plain["per_s"], "librdkafka": headed["librdkafka"],
            **latency_of_kafka_alone(bed.servers, PACE, *bed.arguments.times)}


SCENARIOS = {"backlog": backlog, "single": single, "latency": latency, "kill": kill}
NAMES = ("limits", *SCENARIOS)
WITHOUT = {"single": {"Debezium default", "Debezium low latency"}, "backlog": {"Debezium low latency"},
           "kill": {"Debezium default", "Debezium low latency"}, "latency": set()}


def machine(folder):
    cpu = re.search(r"model name\s*: (.*)", pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8"))
    system = re.search(r'PRETTY_NAME="(.*)"', pathlib.Path("/etc/os-release").read_text(encoding="utf-8"))
    return {"processor": cpu.group(1) if cpu else platform.machine(), "cores": os.cpu_count(),
            "memory_gb": round(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30),
            "system": system.group(1) if system else platform.system(), "kernel": platform.release().split("-")[0],
            "file_system": run("stat", "-f", "-c", "%T", folder).strip()}


def versions(bed, arguments):
    def of_script(name):
        return re.search(r"^VERSION=(\S+)", (ROOT / "script/servers" / name).read_text(encoding="utf-8"),
                         re.MULTILINE).group(1)
    commit = subprocess.run(["git", "-C", ROOT, "rev-parse", "--short", "HEAD"], stdout=subprocess.PIPE,
                            stderr=subprocess.DEVNULL, text=True, check=False).stdout.strip()
    return {"outbox": run(OUTBOX, "--version").split()[-1] + (f" ({commit})" if commit else ""),
            "PostgreSQL": bed.servers.sql("SHOW server_version").split()[0], "Kafka": of_script("kafka"),
            "Debezium Server": of_script("debezium"),
            **({"outboxx": arguments.outboxx_version} if arguments.outboxx else {})}


def turns(bed, scenario, peers, figures, number):
    """One turn of each; every other time from the last to the first."""
    for peer in peers if number % 2 == 0 else reversed(peers):
        if peer.name in WITHOUT[scenario]:
            continue
        say(f"pair {number + 1}: {scenario}, {peer.name}")
        try:
            result = SCENARIOS[scenario](bed, peer)
            if result["missing"]:
                result["failed"] = (f"{result['missing']} events are missing, the first of them number "
                                    f"{result['first_missing']}, the last {result['last_missing']}")
        except (Failed, subprocess.SubprocessError, OSError) as error:
            result = {"failed": str(error)}
        finally:
            peer.stop()
        bed.drop_slots()
        figures["runs"].setdefault(scenario, {}).setdefault(peer.name, []).append(result)
        shown = {key: value for key, value in result.items() if key != "curve"}
        print(f"{scenario:8} {peer.name:22} {json.dumps(shown)}", flush=True)


def measure(arguments):
    figures = {"runs": {}, "limits": [], "pairs": 0, "rows": arguments.rows, "quick": arguments.quick,
               "times": arguments.times}
    with tempfile.TemporaryDirectory(prefix="outbox-bench-") as folder:
        os.chmod(folder, 0o755)
        servers = Servers(folder)
        try:
            bed = Bed(servers, folder, arguments)
            figures |= {"machine": machine(folder), "versions": versions(bed, arguments)}
            if figures["machine"]["file_system"] == "tmpfs":
                say("the servers' folder is in memory, where a commit costs next to nothing: set TMPDIR")
            peers = [Ours(bed, "keep"), Ours(bed, "delete"),
                     *([Outboxx(bed, arguments.outboxx)] if arguments.outboxx else []),
                     *(Debezium(bed, profile) for profile in PROFILES)]
            bed.warm_up(peers[:3])
            for number in range(arguments.pairs):
                if "limits" in arguments.only:
                    say(f"pair {number + 1}: limits")
                    figures["limits"].append(limits(bed))
                    print(f"limits {json.dumps(figures['limits'][-1])}", flush=True)
                for scenario in SCENARIOS:
                    if scenario in arguments.only:
                        turns(bed, scenario, peers, figures, number)
                figures["pairs"] = number + 1
                write(figures, arguments.json)
        finally:
            servers.stop()
    return figures


def write(figures, path):
    pathlib.Path(path).parent.mkdir(parents=True, exist_ok=True)
    pathlib.Path(path).write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")


def prepared(arguments):
    """The options, each checked before anything is measured."""
    arguments.pairs = arguments.pairs or (1 if arguments.quick else 5)
    arguments.times = (2, 4) if arguments.quick else (15, 20)
    arguments.json = arguments.json or str(ROOT / "build" / "peers.json")
    if arguments.outboxx:
        arguments.outboxx_version = outboxx_version(arguments.outboxx)
    for name in ("kafka", "debezium"):
        if subprocess.run([str(ROOT / "script/servers" / name), "install"], check=False).returncode:
            sys.exit(f"script/bench: script/servers/{name} install failed; its reason stands above")
    run(ROOT / "script" / "build", stderr=sys.stderr)


def earlier(paths):
    """Figures of one run, or of several on one machine: each pair is of one of them."""
    merged = None
    for path in paths.split(","):
        try:
            figures = json.loads(pathlib.Path(path).read_text(encoding="utf-8"))
            merged = figures | {"sessions": 1} if merged is None else joined(merged, figures)
        except (OSError, ValueError, KeyError, TypeError) as error:
            sys.exit(f"script/bench: --figures {path}: {error!r}; give files that --json of runs with --peers wrote")
    return merged


def joined(figures, more):
    for key in ("machine", "rows", "times", "quick"):
        if figures[key] != more[key]:
            raise ValueError(f"its {key} are not those of the file before")
    runs = {scenario: {peer: kept + more["runs"].get(scenario, {}).get(peer, []) for peer, kept in of_peers.items()}
            for scenario, of_peers in figures["runs"].items()}
    return figures | {"runs": runs, "limits": figures["limits"] + more["limits"], "versions": more["versions"],
                      "pairs": figures["pairs"] + more["pairs"], "sessions": figures["sessions"] + 1}


def main(arguments):
    """Exit code 1 where a turn came to nothing or an event is missing."""
    if arguments.page and not arguments.page.endswith(".md"):
        sys.exit(f"script/bench: --page {arguments.page}: the page is Markdown, so its name ends in .md")
    if arguments.figures:
        figures = earlier(arguments.figures)
    else:
        prepared(arguments)
        figures = measure(arguments)
    if arguments.page:
        peers_page.write(figures, pathlib.Path(arguments.page))
    print(peers_page.goals_as_text(figures))
    failed = [f"{scenario}, {name}, pair {number + 1}: {turn['failed']}"
              for scenario, of_peers in figures["runs"].items() for name, kept in of_peers.items()
              for number, turn in enumerate(kept) if "failed" in turn]
    if failed:
        sys.exit("\n".join(failed))
