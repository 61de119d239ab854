"""A receiver of webhooks that speaks HTTP/2, by hypercorn.

usage: receiver_http2.py HOST PORT LOG --tls FILE [KEY...]

As receiver.py, with two members more in each line: http_version, and connection, the port that it came from. Answers 200; to a path
/together/N not before N requests are under way at once.
"""

import asyncio
import base64
import json
import socket
import sys

from hypercorn.asyncio import serve
from hypercorn.config import Config

from receiver import signed_with

HOST, PORT, LOG, _, CERTIFICATE, *KEYS = sys.argv[1:]
under_way = 0
all_here = asyncio.Event()


async def body_of(receive):
    body = b""
    while True:
        message = await receive()
        body += message.get("body", b"")
        if not message.get("more_body"):
            return body


def write(scope, body):
    lists = {}
    for name, value in scope["headers"]:
        lists.setdefault(name.decode(), []).append(value.decode())
    headers = {name: values[0] for name, values in lists.items()}
    line = {"method": scope["method"], "path": scope["path"], "body": base64.b64encode(body).decode(), "headers": lists,
            "signed_with": [signed_with(key, body, headers) for key in KEYS],
            "http_version": scope["http_version"], "connection": scope["client"][1]}
    with open(LOG, "a", encoding="utf-8") as log:
        log.write(json.dumps(line) + "\n")


async def receiver(scope, receive, send):
    global under_way
    if scope["type"] == "lifespan":
        while True:
            message = await receive()
            await send({"type": message["type"] + ".complete"})
            if message["type"] == "lifespan.shutdown":
                return
    write(scope, await body_of(receive))
    under_way += 1
    words = scope["path"].split("/")
    if "together" in words:
        if under_way >= int(words[words.index("together") + 1]):
            all_here.set()
        await all_here.wait()
    under_way -= 1
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/plain")]})
    await send({"type": "http.response.body", "body": b"taken\n"})


async def main():
    listener = socket.create_server((HOST, int(PORT)), backlog=128)
    config = Config()
    config.bind = [f"fd://{listener.fileno()}"]
    config.certfile = config.keyfile = CERTIFICATE
    print("ready", flush=True)
    await serve(receiver, config)


asyncio.run(main())
