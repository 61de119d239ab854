"""The way to a server: forward.py PORT TARGET-PORT hands on what comes, until it is killed."""

import asyncio
import sys


async def pump(reader, writer):
    try:
        while data := await reader.read(65536):
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
    await asyncio.gather(pump(reader, far[1]), pump(far[0], writer))


async def main():
    server = await asyncio.start_server(forward, "127.0.0.1", int(sys.argv[1]))
    print("forwards", flush=True)
    await server.serve_forever()


asyncio.run(main())
