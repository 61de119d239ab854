"""What the tests do at NATS without our own code: nats-py.

usage: client.py URL stream NAME SUBJECT [OPTION=VALUE...]   makes a stream (JSON values)
       client.py URL update NAME OPTION=VALUE...             changes one
       client.py URL remove NAME
       client.py URL consumer STREAM NAME [OPTION=VALUE...]  makes a pull consumer
       client.py URL read SUBJECT COUNT SECONDS   what its stream has of it, a JSON object a line
       client.py URL publish SUBJECT              JSON objects from stdin, a line each: id, key, value,
                                                  headers; a field that is null is left out
       client.py URL take STREAM CONSUMER COUNT   takes messages, says nothing of them and goes
       client.py URL left STREAM CONSUMER         messages that are not done, once no member is there
       client.py URL purge STREAM
       client.py URL info STREAM                  what JetStream says of it, as JSON
"""

import asyncio
import base64
import json
import os
import socket
import sys
import time
from urllib.parse import unquote, urlsplit

import nats
from nats.js.api import AckPolicy, ConsumerConfig, StreamConfig
from nats.js.errors import APIError, NotFoundError

PLAIN = ("Nats-Msg-Id", "outbox-key", "outbox-null")


def options_of(words):
    return {name: json.loads(value) for name, value in (word.split("=", 1) for word in words)}


def decoded(headers):
    """As RFC 8187 has it: name* with UTF-8''... is name."""
    for name, value in (headers or {}).items():
        if name.endswith("*") and value.startswith("UTF-8''"):
            yield name[:-1], unquote(value[len("UTF-8''"):], errors="surrogateescape")
        else:
            yield name, value


def id_of(headers):
    return headers.get("id") or headers.get("Nats-Msg-Id", "").split("@")[0]


async def read(js, subject, count, seconds):
    """Waits until `count` ids have come and a moment has been silent."""
    stream = await js.find_stream_name_by_subject(subject)
    end = time.monotonic() + seconds
    seen, messages = set(), []
    sub = await js.subscribe(subject, stream=stream, ordered_consumer=True,
                             pending_msgs_limit=-1, pending_bytes_limit=-1)
    while time.monotonic() < end:
        try:
            message = await sub.next_msg(timeout=0.5 if len(seen) >= count else 5)
        except nats.errors.TimeoutError:
            if len(seen) >= count:
                break
            continue
        messages.append(message)
        seen.add(id_of(message.headers or {}))
    for message in messages:
        headers = dict(decoded(message.headers))
        print(json.dumps({
            "subject": message.subject, "id": id_of(headers), "msg_id": headers.get("Nats-Msg-Id"),
            "key": headers.get("outbox-key"),
            "value": None if "outbox-null" in headers else base64.b64encode(message.data).decode(),
            "headers": [[name, value] for name, value in headers.items() if name not in PLAIN]}))


def as_frame(subject, headers, payload):
    lines = b"NATS/1.0\r\n" + b"".join(f"{k}: {v}\r\n".encode() for k, v in headers.items()) + b"\r\n"
    sizes = f" {len(lines)} {len(lines) + len(payload)}\r\n".encode()
    return b"HPUB " + os.fsencode(subject) + sizes + lines + payload + b"\r\n"


def send_frames(url, frames):
    """What the library does not say: it writes subjects as UTF-8."""
    parts = urlsplit(url)
    with socket.create_connection((parts.hostname, parts.port), 60) as connection:
        lines = connection.makefile("rb")
        lines.readline()
        login = json.dumps({"verbose": False, "headers": True, "user": parts.username, "pass": parts.password})
        connection.sendall(b"CONNECT " + login.encode() + b"\r\n" + b"".join(frames) + b"PING\r\n")
        answer = lines.readline()
        if answer != b"PONG\r\n":
            sys.exit(f"the server says {answer}")


async def publish(js, url, subject):
    answers = []
    frames = []
    for line in sys.stdin:
        letter = json.loads(line)
        headers = {name: value for name, value in letter["headers"]}
        if letter["id"] is not None:
            headers["id"] = letter["id"]
        if letter["key"] is not None:
            headers["outbox-key"] = letter["key"]
        if letter["value"] is None:
            headers["outbox-null"] = "true"
        if not subject.isascii():
            frames.append(as_frame(subject, headers, (letter["value"] or "").encode()))
            continue
        answers.append(await js.publish_async(subject, (letter["value"] or "").encode(),
                                              headers=headers or None, wait_stall=60))
    for answer in answers:
        await answer
    if frames:
        send_frames(url, frames)


async def left(js, stream, consumer):
    """Given to somebody and not done, or not given to anybody yet."""
    end = time.monotonic() + 60
    while time.monotonic() < end:
        info = await js.consumer_info(stream, consumer)
        if info.num_waiting == 0:
            break
        await asyncio.sleep(0.05)
    return info.num_pending + info.num_ack_pending


async def main():
    url, command, *rest = sys.argv[1:]
    client = await nats.connect(url, allow_reconnect=False, connect_timeout=60)
    js = client.jetstream(timeout=60, publish_async_max_pending=1000)
    if command == "stream":
        await js.add_stream(StreamConfig(name=rest[0], subjects=[rest[1]], **options_of(rest[2:])))
    elif command == "update":
        info = await js.stream_info(rest[0])
        await js.update_stream(info.config.evolve(**options_of(rest[1:])))
    elif command == "remove":
        await js.delete_stream(rest[0])
    elif command == "consumer":
        given = {"ack_policy": AckPolicy.EXPLICIT, **options_of(rest[2:])}
        await js.add_consumer(rest[0], ConsumerConfig(durable_name=rest[1], **given))
    elif command == "read":
        await read(js, rest[0], int(rest[1]), float(rest[2]))
    elif command == "publish":
        await publish(js, url, rest[0])
    elif command == "take":
        taken = await (await js.pull_subscribe_bind(rest[1], stream=rest[0])).fetch(int(rest[2]), timeout=60)
        if len(taken) != int(rest[2]):
            sys.exit(f"only {len(taken)} came")
    elif command == "left":
        print(await left(js, rest[0], rest[1]))
    elif command == "purge":
        await js.purge_stream(rest[0])
    elif command == "info":
        info = await js.stream_info(rest[0])
        print(json.dumps(info.as_dict(), default=str))
    else:
        sys.exit(__doc__)
    await client.close()


try:
    asyncio.run(main())
except (APIError, NotFoundError) as error:
    sys.exit(f"JetStream: {error}")
