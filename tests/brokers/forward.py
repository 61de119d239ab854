"""The way to a server: forward.py PORT TARGET-PORT [END] hands on what comes, until it is killed. END: a
connection ends whose client sends WORD, or WORD*N: sends it N times, or N: sends more bytes; WORD+:
behind the next answer. SIGHUP ends all that there are."""

import asyncio
import signal
import sys

END = sys.argv[3] if len(sys.argv) > 3 else ""
LETS_PASS = END.endswith("+")
MOST = int(END) if END.isdigit() else None
WORD, _, TIMES = ("" if MOST else END.removesuffix("+")).encode().partition(b"*")


open_ways = set()


def end_all():
    for writer in list(open_ways):
        writer.transport.abort()


class Sent:
    """What a client has sent on a connection."""

    def __init__(self):
        self.bytes = 0
        self.times = 0
        self.last = b""
        self.is_over = False

    def add(self, data):
        self.bytes += len(data)
        if WORD:
            self.times += (self.last + data).count(WORD)
            self.last = (self.last + data)[1 - len(WORD):]
            self.is_over = self.times >= int(TIMES or 1)
        if MOST:
            self.is_over = self.bytes > MOST


async def pump(reader, writer, sent, is_client):
    try:
        while data := await reader.read(65536):
            if is_client:
                sent.add(data)
            if is_client and sent.is_over and not LETS_PASS:
                break
            writer.write(data)
            await writer.drain()
            if not is_client and sent.is_over:
                break
    except OSError:
        pass
    finally:
        writer.close()


async def forward(reader, writer):
    try:
        far = await asyncio.open_connection("127.0.0.1", int(sys.argv[2]))
    except OSError:
        writer.close()
        return
    open_ways.update((writer, far[1]))
    sent = Sent()
    there = asyncio.create_task(pump(reader, far[1], sent, is_client=True))
    back = asyncio.create_task(pump(far[0], writer, sent, is_client=False))
    await asyncio.wait((there, back), return_when=asyncio.FIRST_COMPLETED if END else asyncio.ALL_COMPLETED)
    writer.close()
    open_ways.difference_update((writer, far[1]))


async def main():
    asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, end_all)
    server = await asyncio.start_server(forward, "127.0.0.1", int(sys.argv[1]))
    print("forwards", flush=True)
    await server.serve_forever()


asyncio.run(main())
