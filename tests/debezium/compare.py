"""The same rows through Debezium and through the relay; what each wrote, byte for byte.
usage: compare.py --source FOLDER --outbox BINARY [--group NAME]... [--record]"""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time

import cases
from confluent_kafka import Consumer, TopicPartition

DEADLINE_S = 60
TYPES_SQL = ("CREATE TYPE mood AS ENUM ('sad', 'so, so', 'happy');")
SHAPE_SQL = """SELECT json_agg(json_build_object('name', a.attname, 'type', b.typname, 'nullable', NOT a.attnotnull,
 'length', CASE WHEN m.mod < 0 THEN -1 WHEN b.typname = 'numeric' THEN (m.mod - 4) >> 16
                WHEN b.typname IN ('varchar', 'bpchar') THEN m.mod - 4 ELSE m.mod END,
 'scale', CASE WHEN b.typname = 'numeric' AND m.mod >= 0 THEN (m.mod - 4) & 2047 ELSE 0 END,
 'default', coalesce((SELECT pg_get_expr(adbin, adrelid) FROM pg_attrdef
                      WHERE adrelid = a.attrelid AND adnum = a.attnum), ''),
 'labels', coalesce((SELECT string_agg(enumlabel, ',' ORDER BY enumsortorder) FROM pg_enum
                     WHERE enumtypid = b.oid), '')) ORDER BY a.attnum)
 FROM pg_attribute a JOIN pg_type b ON b.oid = a.atttypid CROSS JOIN LATERAL (SELECT a.atttypmod AS mod) m
 WHERE a.attrelid = '%s'::regclass AND a.attnum > 0"""


class Server:
    def __init__(self, source, name, folder, environment=None):
        self.command = [f"{source}/script/servers/{name}"]
        self.options = ["--dir", folder]
        self.environment = {**os.environ, **(environment or {})}
        self.folder = folder

    def run(self, verb):
        done = subprocess.run(self.command + [verb] + self.options, env=self.environment, check=True,
                              stdout=subprocess.PIPE, text=True)
        return done.stdout.strip()


def read_text(path):
    with open(path) as file:
        return file.read()


def sql(url, text):
    done = subprocess.run(["psql", "-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", url], input=text, text=True,
                          stdout=subprocess.PIPE, check=True)
    return done.stdout.strip()


def literal(row):
    return f"({', '.join(row)}) VALUES ({', '.join(row.values())});"


def id_column(case):
    return case["options"].get("table.field.event.id", "id")


class Records:
    """What comes into Kafka's topics from now on, by the id in the header."""

    def __init__(self, address, ids):
        self.ids = ids
        self.found = {}
        self.consumer = Consumer({"bootstrap.servers": address, "group.id": "compare", "enable.auto.commit": False,
                                  "auto.offset.reset": "earliest"})
        self.offsets = {}

    def read(self, count, ended):
        deadline = time.monotonic() + DEADLINE_S
        while len(self.found) < count:
            if time.monotonic() > deadline or ended():
                return False
            self.assign()
            message = self.consumer.poll(0.2)
            while message is not None and message.error() is None:
                self.offsets[(message.topic(), message.partition())] = message.offset() + 1
                self.take(message)
                message = self.consumer.poll(0.02)
        return True

    def assign(self):
        topics = self.consumer.list_topics(timeout=10).topics
        places = [(name, part) for name, topic in topics.items() if not name.startswith("__")
                  for part in topic.partitions]
        fresh = [place for place in places if place not in self.offsets]
        if fresh:
            for place in fresh:
                self.offsets[place] = 0
            self.consumer.assign([TopicPartition(name, part, offset)
                                  for (name, part), offset in self.offsets.items()])

    def take(self, message):
        headers = [(name, None if value is None else value.decode()) for name, value in message.headers() or []]
        event = next((value for name, value in headers if name == "id"), None)
        found = next((known for known in self.ids if known in (event or "")), None)
        if found is None:
            return
        decode = lambda value: None if value is None else value.decode("utf-8", "backslashreplace")
        self.found.setdefault(found, []).append(
            {"topic": message.topic(), "partition": message.partition(), "key": decode(message.key()),
             "value": decode(message.value()), "headers": headers})

    def take_all(self):
        found, self.found = self.found, {}
        return found


def properties(group, chosen, postgres, kafka, slot):
    host, database = postgres.split("@")[1].split("/")
    lines = {
        "debezium.source.connector.class": "io.debezium.connector.postgresql.PostgresConnector",
        "debezium.source.database.hostname": host.split(":")[0], "debezium.source.database.port": host.split(":")[1],
        "debezium.source.database.user": "relay", "debezium.source.database.password": "test",
        "debezium.source.database.dbname": database, "debezium.source.topic.prefix": "dbz",
        "debezium.source.plugin.name": "pgoutput", "debezium.source.slot.name": slot,
        "debezium.source.publication.name": slot, "debezium.source.publication.autocreate.mode": "filtered",
        "debezium.source.table.include.list": ",".join(f"public.{case['name']}" for case in chosen),
        "debezium.source.snapshot.mode": "no_data", "debezium.source.tombstones.on.delete": "false",
        "debezium.sink.type": "kafka", "debezium.sink.kafka.producer.bootstrap.servers": kafka,
    }
    binary = group["options"].get("format.value") == "binary"
    for part in ("key", "value"):
        kind = "ByteArraySerializer" if binary and part == "value" else "StringSerializer"
        lines[f"debezium.sink.kafka.producer.{part}.serializer"] = f"org.apache.kafka.common.serialization.{kind}"
    for name, value in group["options"].items():
        lines[f"debezium.{name}"] = value
    lines["debezium.transforms"] = ",".join(case["name"] for case in chosen)
    several = len(chosen) > 1
    if several:
        lines["debezium.predicates"] = ",".join(case["name"] for case in chosen)
    for case in chosen:
        alias = f"debezium.transforms.{case['name']}."
        lines[alias + "type"] = "io.debezium.transforms.outbox.EventRouter"
        for name, value in case["options"].items():
            lines[alias + name] = value.replace("${", "\\\\${")
        if several:
            lines[alias + "predicate"] = case["name"]
            predicate = f"debezium.predicates.{case['name']}."
            lines[predicate + "type"] = "org.apache.kafka.connect.transforms.predicates.TopicNameMatches"
            lines[predicate + "pattern"] = f"dbz.public.{case['name']}"
    return "".join(f"{name}={value}\n" for name, value in lines.items())


def through_debezium(arguments, place, group, postgres, kafka, records, count):
    path = f"{place}/debezium.properties"
    with open(path, "w") as file:
        file.write(properties(group, group["cases"], postgres, kafka, "oracle"))
    server = Server(arguments.source, "debezium", f"{place}/debezium", {"DEBEZIUM_PROPERTIES": path})
    server.run("install")
    server.run("start")
    try:
        deadline = time.monotonic() + 60
        while sql(postgres, "SELECT count(*) FROM pg_replication_slots WHERE active AND slot_name = 'oracle'") != "1":
            if time.monotonic() > deadline:
                raise SystemExit("Debezium does not stream:\n" + read_text(f"{place}/debezium/log")[-3000:])
            time.sleep(0.2)
        for case in group["cases"]:
            sql(postgres, "".join(f"INSERT INTO {case['name']} {literal(row)}\n" for row in case["rows"]))
        complete = records.read(count, lambda: "Engine has failed" in read_text(f"{place}/debezium/log"))
    finally:
        log = read_text(f"{place}/debezium/log")
        server.run("wipe")
    if not complete:
        print("\n".join(line for line in log.splitlines() if "ERROR" in line or "Caused by" in line or
                        "Exception" in line)[:4000], file=sys.stderr)
    sql(postgres, "SELECT pg_drop_replication_slot('oracle'); DROP PUBLICATION oracle;")
    return records.take_all()


def through_relay(arguments, place, group, case, postgres, kafka, records, count):
    with open(f"{place}/one.properties", "w") as file:
        file.write(properties(group, [case], postgres, kafka, "oracle"))
    made = subprocess.run([arguments.outbox, "import", "debezium", f"{place}/one.properties"], check=True,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    with open(f"{place}/outbox.toml", "w") as file:
        file.write(made.stdout)
    with open(f"{place}/relay.log", "a") as log:
        relay = subprocess.Popen([arguments.outbox, "relay", "--config", f"{place}/outbox.toml", "--from", postgres,
                                  "--to", f"kafka://{kafka}", "--admin", "off"], stdout=log, stderr=log)
        try:
            if not records.read(count, lambda: relay.poll() is not None):
                print(read_text(f"{place}/relay.log")[-3000:], file=sys.stderr)
        finally:
            relay.send_signal(signal.SIGTERM)
            relay.wait(timeout=60)
    return records.take_all()


def differences(name, expected, got):
    if expected is None or got is None:
        return [f"{name}: only {'the relay' if expected is None else 'Debezium'} wrote it"]
    found = []
    if len(expected) > 1 or len(got) > 1:
        found.append(f"{name}: written {len(expected)} and {len(got)} times")
    # Without a key the client chooses a partition at random.
    compared = ["topic", "key", "value"] + (["partition"] if expected[0]["key"] is not None else [])
    for what in compared:
        if expected[0][what] != got[0][what]:
            found.append(f"{name}: {what}\n    debezium {expected[0][what]!r}\n    outbox   {got[0][what]!r}")
    for one, other in zip(expected[0]["headers"], got[0]["headers"]):
        if one != other:
            found.append(f"{name}: header\n    debezium {one!r}\n    outbox   {other!r}")
    if len(expected[0]["headers"]) != len(got[0]["headers"]):
        found.append(f"{name}: {len(expected[0]['headers'])} and {len(got[0]['headers'])} headers")
    return found


def golden(group, postgres, printed, written):
    out = {"options": group["options"], "cases": []}
    for case in group["cases"]:
        shape = json.loads(sql(postgres, SHAPE_SQL % case["name"]))
        out["cases"].append({"table": case["name"], "options": case["options"],
                             "columns": [column for column in shape if column["name"] != "position"],
                             "rows": [{"row": printed[case["name"]][event], "record": written[event][0]}
                                      for event in ids_of(case) if event in written]})
    return out


def ids_of(case):
    return [row[id_column(case)].strip("'") for row in case["rows"]]


def printed_rows(case, postgres):
    """Each row as PostgreSQL prints its values."""
    columns = list(dict.fromkeys(column.strip().split(" ")[0] for column in case["ddl"].split(", ")
                                 if column.strip()[0].islower() and not column.startswith("position")))
    columns = json.loads(sql(postgres, f"SELECT json_agg(attname) FROM pg_attribute WHERE attrelid = "
                                       f"'{case['name']}'::regclass AND attnum > 0 AND attname <> 'position'"))
    pairs = ", ".join(f"'{name}', CASE WHEN {name} IS NOT NULL THEN concat({name}) END" for name in columns)
    text = sql(postgres, f"SET TimeZone = 'UTC'; SELECT json_agg(json_build_object({pairs})) FROM {case['name']}")
    return {row[id_column(case)]: row for row in json.loads(text)}


def compare(arguments, name, group, place, postgres, kafka):
    ids = [event for case in group["cases"] for event in ids_of(case)]
    records = Records(kafka, ids)
    for case in group["cases"]:
        sql(postgres, f"CREATE TABLE {case['name']} ({case['ddl']}); "
                      f"ALTER TABLE {case['name']} ADD PRIMARY KEY ({id_column(case)});"
                      + (f"CREATE UNIQUE INDEX ON {case['name']} (position);"
                         if "position bigint" in case["ddl"] else ""))
    expected = through_debezium(arguments, place, group, postgres, kafka, records, len(ids))
    found = []
    printed = {case["name"]: printed_rows(case, postgres) for case in group["cases"]}
    if arguments.record:
        os.makedirs(f"{arguments.source}/tests/debezium/golden", exist_ok=True)
        with open(f"{arguments.source}/tests/debezium/golden/{name}.json", "w") as file:
            json.dump(golden(group, postgres, printed, expected), file, ensure_ascii=False, indent=0)
            file.write("\n")
    if arguments.without_relay:
        missing = [event for event in ids if event not in expected]
        print(f"{name}: Debezium wrote {len(expected)} of {len(ids)}", missing, flush=True)
        return []
    for case in group["cases"]:
        wanted = [event for event in ids_of(case)]
        got = through_relay(arguments, place, group, case, postgres, kafka, records, len(wanted))
        mine = []
        for event, row in zip(wanted, case["rows"]):
            mine += differences(f"{case['name']} {row}"[:300], expected.get(event), got.get(event))
        print(f"{case['name']}: {len(wanted)} rows, {len(mine)} differences", flush=True)
        found += mine
    return found


def main():
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that the servers are ended
    parser = argparse.ArgumentParser()
    parser.add_argument("--source", required=True)
    parser.add_argument("--outbox", required=True)
    parser.add_argument("--group", action="append")
    parser.add_argument("--only", help="cases whose names hold this")
    parser.add_argument("--record", action="store_true", help="write what Debezium wrote into golden/")
    parser.add_argument("--without-relay", action="store_true")
    arguments = parser.parse_args()
    found = []
    with tempfile.TemporaryDirectory(prefix="outbox-debezium-") as place:
        os.chmod(place, 0o755)
        postgres = Server(arguments.source, "postgres", f"{place}/postgres")
        kafka = Server(arguments.source, "kafka", f"{place}/kafka")
        try:
            url = postgres.run("start")
            os.environ["PGPASSFILE"] = f"{place}/postgres/data/pgpass"
            sql(url, TYPES_SQL + "CREATE ROLE relay SUPERUSER REPLICATION LOGIN PASSWORD 'test';")
            address = kafka.run("start")
            for name in arguments.group or cases.GROUPS:
                group = dict(cases.GROUPS[name])
                if arguments.only:
                    group["cases"] = [case for case in group["cases"] if arguments.only in case["name"]]
                found += compare(arguments, name, group, place, url, address)
        finally:
            kafka.run("wipe")
            postgres.run("wipe")
    for difference in found:
        print(difference)
    print(f"{len(found)} differences")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
