"""The commands of docs/brokers/nats.md for `nats`, the command line of NATS, by nats-py: that program
is written in Go and no package of Debian 12. What it does not know, it refuses.

usage: cli.py URL stream add NAME --subjects SUBJECT --defaults
       cli.py URL stream get NAME SEQUENCE
       cli.py URL consumer add STREAM NAME --pull --ack explicit --max-deliver COUNT --defaults
"""

import argparse
import asyncio
import sys

import nats
from nats.js.api import AckPolicy, ConsumerConfig, StreamConfig


def parse(words):
    parser = argparse.ArgumentParser(prog="nats", allow_abbrev=False)
    kinds = parser.add_subparsers(dest="kind", required=True)
    stream = kinds.add_parser("stream").add_subparsers(dest="command", required=True)
    add = stream.add_parser("add", allow_abbrev=False)
    add.add_argument("name")
    add.add_argument("--subjects", action="append", required=True)
    add.add_argument("--defaults", action="store_true", required=True)
    get = stream.add_parser("get", allow_abbrev=False)
    get.add_argument("name")
    get.add_argument("sequence", type=int)
    consumer = kinds.add_parser("consumer").add_subparsers(dest="command", required=True)
    add = consumer.add_parser("add", allow_abbrev=False)
    add.add_argument("stream")
    add.add_argument("name")
    add.add_argument("--pull", action="store_true", required=True)
    add.add_argument("--ack", choices=["explicit"], required=True)
    add.add_argument("--max-deliver", type=int, required=True)
    add.add_argument("--defaults", action="store_true", required=True)
    return parser.parse_args(words)


async def main():
    given = parse(sys.argv[2:])
    client = await nats.connect(sys.argv[1], allow_reconnect=False)
    js = client.jetstream()
    if given.kind == "consumer":
        await js.add_consumer(given.stream, ConsumerConfig(
            durable_name=given.name, ack_policy=AckPolicy.EXPLICIT, max_deliver=given.max_deliver))
    elif given.command == "add":
        await js.add_stream(StreamConfig(name=given.name, subjects=given.subjects))
    else:
        message = await js.get_msg(given.name, given.sequence)
        print(message.subject, message.headers, message.data.decode())
    await client.close()


asyncio.run(main())
