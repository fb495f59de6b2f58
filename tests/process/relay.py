"""A relay: stands between two ends of TCP connections, and can be a bad network."""

import asyncio
import contextlib

HOST = "127.0.0.1"
_CHUNK = 65_536


class Relay:
    """From `open` to `close`: what connects to `address` is connected to `target`."""

    def __init__(self) -> None:
        self.address = self.target = ""
        self.delay = 0.0  # seconds, for everything that passes
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_cut = False
        self._flows = asyncio.Event()
        self._flows.set()

    async def open(self, target: str = "") -> str:
        self.target = target
        self._server = await asyncio.start_server(self._connected, HOST, 0)
        self.address = f"{HOST}:{self._server.sockets[0].getsockname()[1]}"
        return self.address

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
        self._abort()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def cut(self) -> None:
        """Both ends are told that the connection is gone, and none can be made."""
        self._is_cut = True
        self._abort()

    def silence(self) -> None:
        """Nothing passes, and nobody is told: neither of bytes, nor of ends that have closed. A connection that is open
        after it goes on with what was held back, as TCP does."""
        self._flows.clear()

    def heal(self) -> None:
        self._is_cut, self.delay = False, 0.0
        self._flows.set()

    def _abort(self) -> None:
        for writer in self._writers:
            writer.transport.abort()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self._writers.add(writer)
        try:
            await self._relay(reader, writer)
        except (OSError, asyncio.CancelledError):
            pass
        finally:
            writer.transport.abort()
            self._writers.discard(writer)
            self._tasks.discard(task)

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await self._flows.wait()
        if self._is_cut:
            return
        host, _, port = self.target.rpartition(":")
        there, back = await asyncio.open_connection(host, int(port))
        self._writers.add(back)
        try:
            async with asyncio.TaskGroup() as both:
                both.create_task(self._pass(reader, back))
                both.create_task(self._pass(there, writer))
        finally:
            back.transport.abort()
            self._writers.discard(back)

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Until one side has closed: then the other is told, after all that came before it."""
        with contextlib.suppress(OSError):
            while data := await reader.read(_CHUNK):
                if self.delay:
                    await asyncio.sleep(self.delay)
                await self._flows.wait()
                writer.write(data)
                await writer.drain()
        await self._flows.wait()
        with contextlib.suppress(OSError):
            writer.close()
            await writer.wait_closed()
