"""The way to a server: forward.py PORT TARGET-PORT [WORD] hands on what comes, until it is killed. A
connection whose client sends WORD ends."""

import asyncio
import sys

WORD = sys.argv[3].encode() if len(sys.argv) > 3 else None


async def pump(reader, writer, word=None):
    last = b""
    try:
        while data := await reader.read(65536):
            last = last[-len(word):] + data if word else b""
            if word and word in last:
                break
            writer.write(data)
            await writer.drain()
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
    there = asyncio.create_task(pump(reader, far[1], WORD))
    back = asyncio.create_task(pump(far[0], writer))
    await asyncio.wait((there, back), return_when=asyncio.FIRST_COMPLETED if WORD else asyncio.ALL_COMPLETED)
    writer.close()


async def main():
    server = await asyncio.start_server(forward, "127.0.0.1", int(sys.argv[1]))
    print("forwards", flush=True)
    await server.serve_forever()


asyncio.run(main())
