"""The relays of `script/bench --peers`: how each is prepared, started, killed and stopped."""
import os
import pathlib
import re
import signal
import subprocess
import sys
import time

from measuring import EVENTS, ROOT, TOPIC, Relay, answers, run

DATABASE = "bench"

# What the others read: the table of Debezium's documentation, with the same events.
ROUTED = "outboxevent (id, aggregatetype, aggregateid, type, payload)"
ROUTED_TABLE = """CREATE TABLE outboxevent (id uuid PRIMARY KEY, aggregatetype varchar(255) NOT NULL,
    aggregateid varchar(255) NOT NULL, type varchar(255) NOT NULL, payload jsonb)"""


class Failed(RuntimeError):
    """A turn that came to nothing; the others go on."""


class Peer:
    """A relay of the comparison. `prepare` leaves a database in which nothing is written yet, and all
    that the relay needs to find later what is written while it is stopped."""

    columns = ROUTED
    paced_values = "gen_random_uuid(), 'Bench', 'k' || :k, 'Paced'"
    process = None

    def __init__(self, bed, name):
        self.bed, self.name = bed, name
        self.url = None

    def prepare(self):
        """Up and down once: from then on the server keeps its log for it."""
        self.url = self.bed.servers.empty_database(DATABASE)
        self.bed.servers.sql(ROUTED_TABLE, self.url)
        self.bed.fresh_topic()
        self.configure()
        with self.bed.watch() as watch:
            self.start()
            self.mark(watch)
        self.stop()
        self.bed.fresh_topic()

    def configure(self):
        raise NotImplementedError

    def start(self):
        raise NotImplementedError

    def mark(self, watch):
        """Waits until it streams: events that are none of those counted, until one comes."""
        values = self.paced_values.replace(":k", "0")
        deadline = time.monotonic() + 60
        while not watch.records():
            if time.monotonic() > deadline:
                raise Failed(f"no event came through within 60 s; {self.last_words()}")
            self.check()
            watch.check()
            self.bed.servers.sql(f"INSERT INTO {self.columns} VALUES ({values}, '{{\"n\": 0}}')", self.url)
            time.sleep(1)

    def pid(self):
        return self.process.pid

    def check(self):
        if self.process.poll() is not None:
            raise Failed(f"it ended with {self.process.returncode}; {self.last_words()}")

    def log_file(self):
        return self.bed.folder / f"{self.name}.log"

    def last_words(self):
        try:
            lines = self.log_file().read_text(encoding="utf-8", errors="replace").split("\n")
        except OSError:
            return "it wrote no log"
        return "its log ends with: " + next((line[-300:] for line in reversed(lines) if line.strip()), "(nothing)")

    def kill(self):
        os.kill(self.pid(), signal.SIGKILL)
        self.process.wait()

    def stop(self):
        if self.process and self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(timeout=60)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()

    def finished(self):
        """Whether nothing is left to be done behind the last record."""
        return True


class Ours(Peer):
    columns = EVENTS

    def __init__(self, bed, layout):
        super().__init__(bed, f"outbox {layout}")
        self.layout = layout

    def prepare(self):
        self.url = self.bed.servers.database(DATABASE, "--after-publish", self.layout)
        self.bed.fresh_topic()

    def start(self):
        self.process = Relay(self.url, f"kafka://{self.bed.servers.kafka()}", self.bed.folder).process

    def log_file(self):
        return self.bed.folder / "relay.log"

    def finished(self):
        # The last rows first, by their index: to look through what was removed costs the server much.
        left = (f"CASE WHEN EXISTS (SELECT FROM outbox_events WHERE position > {self.bed.rows - 1000}) THEN true "
                "ELSE EXISTS (SELECT FROM outbox_events) END" if self.layout == "delete" else
                "EXISTS (SELECT FROM outbox_status WHERE status IN ('PENDING', 'RETRYING'))")
        return self.bed.servers.sql(f"SELECT {left}", self.url) == "f"


class Outboxx(Peer):
    """lukashes/outboxx, by its example's configuration; its topics and batches are not to be set."""

    def __init__(self, bed, path):
        super().__init__(bed, "outboxx")
        self.path = path
        self.config = bed.folder / "outboxx.toml"

    def configure(self):
        self.config.write_text(f"""[metadata]
version = "v0"
[source]
type = "postgres"
[source.postgres]
connection_env = "POSTGRES_URL"
slot_name = "outboxx"
publication_name = "outboxx"
[sink]
type = "kafka"
[sink.kafka]
brokers = ["{self.bed.servers.kafka()}"]
tls = false
[[streams]]
name = "events"
[streams.source]
resource = "outboxevent"
operations = ["insert"]
[streams.flow]
format = "json"
[streams.sink]
destination = "{TOPIC}"
routing_key = "aggregateid"
""", encoding="utf-8")

    def start(self):
        with open(self.log_file(), "a", encoding="utf-8") as log:
            self.process = subprocess.Popen([str(self.path), "--config", str(self.config)], stdout=log, stderr=log,
                                            env={**os.environ, "POSTGRES_URL": self.url})

    def check(self):
        # It leaves starting again to a supervisor, and the slot is its predecessor's for a moment.
        if self.process.poll() is not None:
            self.start()
            time.sleep(0.05)


# Of Debezium Server, beyond what a first use needs.
TUNED = {"source.max.batch.size": "8192", "source.max.queue.size": "32768", "source.poll.interval.ms": "10",
         "source.offset.flush.interval.ms": "1000", "sink.kafka.producer.linger.ms": "5",
         "sink.kafka.producer.batch.size": "262144", "sink.kafka.producer.buffer.memory": "134217728",
         "format.header.schemas.enable": "false"}
PROFILES = {"tuned": (TUNED, "-XX:+UseParallelGC", "2g"),
            "low latency": ({**TUNED, "source.poll.interval.ms": "1", "sink.kafka.producer.linger.ms": "0"},
                            "-XX:+UseParallelGC", "2g"),
            "default": ({"source.offset.flush.interval.ms": "60000"}, "", None)}


class Debezium(Peer):
    SCRIPT = ROOT / "script" / "servers" / "debezium"

    def __init__(self, bed, profile):
        super().__init__(bed, f"Debezium {profile}")
        self.options, self.jvm, self.heap = PROFILES[profile]
        self.folder = bed.folder / "debezium"

    def log_file(self):
        return self.folder / "log"

    def environment(self):
        heap = self.heap or f"{os.sysconf('SC_PHYS_PAGES') * os.sysconf('SC_PAGE_SIZE') // 4 // 2**20}m"
        return {**os.environ, "DEBEZIUM_PROPERTIES": str(self.bed.folder / "debezium.properties"),
                "DEBEZIUM_HEAP": heap, "DEBEZIUM_JVM": self.jvm}

    def configure(self):
        run(self.SCRIPT, "wipe", "--dir", self.folder)
        host, port = re.search(r"@([^:/]+):(\d+)", self.url).groups()
        properties = {
            "source.connector.class": "io.debezium.connector.postgresql.PostgresConnector",
            "source.database.hostname": host, "source.database.port": port, "source.database.user": "relay",
            "source.database.password": "test", "source.database.dbname": DATABASE, "source.topic.prefix": "dbz",
            "source.plugin.name": "pgoutput", "source.slot.name": "debezium",
            "source.publication.name": "debezium", "source.publication.autocreate.mode": "filtered",
            "source.table.include.list": "public.outboxevent", "source.snapshot.mode": "no_data",
            "source.tombstones.on.delete": "false", "transforms": "outbox",
            "transforms.outbox.type": "io.debezium.transforms.outbox.EventRouter",
            "transforms.outbox.route.topic.replacement": TOPIC,
            "format.key": "simplestring", "format.value": "simplestring", "sink.type": "kafka",
            "sink.kafka.producer.bootstrap.servers": self.bed.servers.kafka(),
            "sink.kafka.producer.acks": "all", "sink.kafka.producer.enable.idempotence": "true",
            **{f"sink.kafka.producer.{part}.serializer": "org.apache.kafka.common.serialization.StringSerializer"
               for part in ("key", "value")}, **self.options}
        (self.bed.folder / "debezium.properties").write_text(
            "".join(f"debezium.{name}={value}\n" for name, value in properties.items()), encoding="utf-8")

    def start(self):
        try:
            run(self.SCRIPT, "start", "--dir", self.folder, env=self.environment())
        except subprocess.CalledProcessError:
            raise Failed(f"it did not start; {self.last_words()}") from None

    def pid(self):
        return int((self.folder / "pid").read_text().split()[0])

    def check(self):
        if not pathlib.Path(f"/proc/{self.pid()}").exists():
            raise Failed(f"it ended; {self.last_words()}")

    def kill(self):
        stat = pathlib.Path(f"/proc/{self.pid()}/stat")
        os.kill(self.pid(), signal.SIGKILL)
        # Whoever inherited it may let it be a zombie for a second, which is no part of its start: without
        # its pid the script takes it for ended.
        while self.lives(stat) or answers(int((self.folder / "port").read_text())):
            time.sleep(0.001)
        (self.folder / "pid").unlink()

    @staticmethod
    def lives(stat):
        try:
            return stat.read_text().rsplit(")", 1)[1].split()[0] != "Z"
        except OSError:
            return False

    def stop(self):
        run(self.SCRIPT, "stop", "--dir", self.folder)


def outboxx_version(path):
    """Says what is wrong with a path that is not outboxx's."""
    try:
        said = subprocess.run([path, "--version"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              timeout=10, check=True).stdout
    except (OSError, subprocess.SubprocessError) as error:
        sys.exit(f"script/bench: --outboxx {path} cannot be run: {error}; give the path of outboxx's binary")
    found = re.match(r"outboxx (\S+)", said)
    if not found:
        sys.exit(f"script/bench: --outboxx {path} is not outboxx: to --version it says '{said[:60].partition(chr(10))[0]}'")
    return found.group(1)
