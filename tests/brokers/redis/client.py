"""What the tests do at Redis without our own code: redis-py.

usage: client.py URL read STREAM COUNT SECONDS   its entries, a JSON object a line, in their order
       client.py URL publish STREAM              JSON objects from stdin, a line each: id, key, value,
                                                 headers; a field that is null is left out
       client.py URL left STREAM GROUP           entries that are not done, once no member is connected
       client.py URL do COMMAND [ARGUMENT...]    any command; prints the answer
"""

import base64
import json
import sys
import time

import redis


def pairs_of(entry):
    """Fields and values in their order, which redis-py's dictionaries keep."""
    return [[name.decode("utf-8", "surrogateescape"), value] for name, value in entry.items()]


def read(client, stream, count, seconds):
    """Waits until `count` ids have come and a moment has been silent."""
    end = time.monotonic() + seconds
    before = -1
    while True:
        entries = client.xrange(stream)
        ids = {entry.get(b"id") for _, entry in entries}
        if time.monotonic() > end or (len(ids) >= count and before == len(entries)):
            break
        before = len(entries)
        time.sleep(0.2)
    for _, entry in entries:
        fields = pairs_of(entry)
        value = entry.get(b"value")
        print(json.dumps({
            "id": entry[b"id"].decode(), "key": entry[b"key"].decode() if b"key" in entry else None,
            "value": None if value is None else base64.b64encode(value).decode(),
            "headers": [[name, text.decode("utf-8", "surrogateescape")] for name, text in fields
                        if name not in ("key", "value")]}))


def publish(client, stream):
    pipeline = client.pipeline(transaction=True)
    for line in sys.stdin:
        letter = json.loads(line)
        fields = {name: letter[name] for name in ("id", "key", "value") if letter[name] is not None}
        pipeline.xadd(stream, {**fields, **dict(letter["headers"])} or {"none": ""})
    pipeline.execute()


def left(client, stream, group):
    """Pending and not read yet."""
    while any(one["name"].startswith("outbox-") for one in client.client_list()):
        time.sleep(0.01)
    return sum(one["pending"] + (one["lag"] or 0) for one in client.xinfo_groups(stream)
               if one["name"].decode() == group)


def main():
    url, command, *rest = sys.argv[1:]
    client = redis.Redis.from_url(url, socket_timeout=60)
    if command == "read":
        read(client, rest[0], int(rest[1]), float(rest[2]))
    elif command == "publish":
        publish(client, *rest)
    elif command == "left":
        print(left(client, *rest))
    elif command == "do":
        print(client.execute_command(*rest))
    else:
        sys.exit(__doc__)


main()
