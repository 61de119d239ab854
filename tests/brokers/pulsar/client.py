"""What the tests do at Pulsar without our own code: pulsar-client, and the admin API.

usage: client.py FOLDER PORT read TOPIC COUNT SECONDS   what it has, a JSON object a line
       client.py FOLDER PORT fence TOPIC                has the topic for itself until it is killed
       client.py FOLDER PORT admin METHOD PATH [JSON]   prints the answer
       client.py FOLDER PORT bench TOPIC COUNT BYTES {singly|batched}   what it publishes a second

FOLDER is the server's, with token and web_port in it.
"""

import base64
import json
import pathlib
import signal
import sys
import time
import urllib.error
import urllib.request
from urllib.parse import unquote

import pulsar

folder, port, command, *rest = sys.argv[1:]
folder = pathlib.Path(folder)
token = (folder / "token").read_text()


def client():
    return pulsar.Client(f"pulsar://localhost:{port}",
                         authentication=pulsar.AuthenticationToken(token),
                         operation_timeout_seconds=120, connection_timeout_ms=60_000,
                         logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))


def decoded(name, value):
    """As RFC 8187 has it: name* with UTF-8''... is name."""
    if name.endswith("*") and value.startswith("UTF-8''"):
        return [name[:-1], unquote(value[len("UTF-8''"):], errors="surrogateescape")]
    return [name, value]


def show(message, partition):
    headers = [decoded(*pair) for pair in message.properties().items()]
    print(json.dumps({
        "id": dict(headers).get("id"), "key": message.partition_key() or None,
        "value": None if message.has_null_value() else base64.b64encode(message.data()).decode(),
        "headers": headers, "partition": partition, "event_ms": message.event_timestamp(),
        "producer": message.producer_name(), "batch_index": message.message_id().batch_index()}))


def read(connected, topic, count, seconds):
    """Waits until `count` ids have come and nothing more is there."""
    end = time.monotonic() + seconds
    seen = set()
    readers = [connected.create_reader(name, pulsar.MessageId.earliest)
               for name in connected.get_topic_partitions(topic)]
    while time.monotonic() < end:
        for partition, reader in enumerate(readers):
            while reader.has_message_available():
                message = reader.read_next(60_000)
                seen.add(message.properties().get("id"))
                show(message, partition)
        if len(seen) >= count:
            break
        time.sleep(0.05)


def fence(connected, topic):
    producer = connected.create_producer(
        topic, access_mode=pulsar.ProducerAccessMode.ExclusiveWithFencing)
    print("fenced:", producer.topic(), flush=True)
    signal.pause()


def admin(method, path, body=None):
    request = urllib.request.Request(
        f"http://localhost:{(folder / 'web_port').read_text().strip()}/admin/v2/{path}",
        method=method, data=body.encode() if body else None,
        headers={"Content-Type": "application/json", "Authorization": "Bearer " + token})
    try:
        with urllib.request.urlopen(request, timeout=120) as answer:
            print(answer.read().decode())
    except urllib.error.HTTPError as error:
        sys.exit(f"{method} {path}: {error.code} {error.read().decode()[:500]}")


def bench(connected, topic, count, size, batched):
    producer = connected.create_producer(
        topic, batching_enabled=batched, block_if_queue_full=True, max_pending_messages=8000,
        batching_max_publish_delay_ms=1)
    value = b"x" * size
    start = time.monotonic()
    for number in range(count):
        producer.send_async(value, None, properties={"id": str(number)})
    producer.flush()
    print(json.dumps({"per_s": round(count / (time.monotonic() - start))}))


if command == "admin":
    admin(*rest)
    sys.exit(0)
connected = client()
if command == "read":
    read(connected, rest[0], int(rest[1]), float(rest[2]))
elif command == "fence":
    fence(connected, rest[0])
elif command == "bench":
    bench(connected, rest[0], int(rest[1]), int(rest[2]), rest[3] == "batched")
else:
    sys.exit(__doc__)
connected.close()
