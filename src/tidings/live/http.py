"""The port for those who watch a broker: what it counts, whether it lives, whether it is ready."""

import asyncio
import contextlib
import errno
import json
import socket
import time
from collections.abc import Awaitable, Callable, Iterator, MutableMapping, Sequence
from typing import Any, Self

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from tidings.live.configuration import Address
from tidings.model.errors import InvalidValueError

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Any]]
Send = Callable[[Any], Awaitable[None]]
_TEXT, _JSON = "text/plain; charset=utf-8", "application/json"
_READERS = 64  # at a time; with more, who has asked nothing for the longest time has to go
_PATIENCE = 10.0  # seconds in which a question must have come whole


class HttpPort:
    """In the broker's own loop, from `async with` on.

    `page` writes the metrics in the form that an Accept header asks for; `hindrances` says why the broker is not ready,
    if it is not.
    """

    def __init__(
        self,
        listen: Address,
        broker: str,
        page: Callable[[str], tuple[bytes, str]],
        hindrances: Callable[[], Sequence[str]],
    ) -> None:
        self.address = listen  # with the port that was picked, once it is open
        self._broker, self._page, self._hindrances = broker, page, hindrances
        self._begun = time.monotonic()

    async def __aenter__(self) -> Self:
        opened = _opened(self.address)
        host, port = opened.getsockname()[:2]
        self.address = Address(host, port)
        self._server = _Server(
            uvicorn.Config(
                self._answer,
                interface="asgi3",
                proxy_headers=False,
                log_config=None,
                access_log=False,
                lifespan="off",
                http=_Reader,
                ws="none",
                server_header=False,
                limit_concurrency=_READERS + 1,
                timeout_graceful_shutdown=1,
            )
        )
        # Whoever connects before it runs waits in the socket's queue.
        self._task = asyncio.create_task(self._server.serve(sockets=[opened]), name="http")
        return self

    @property
    def connection_count(self) -> int:
        """The number of connections that are open now."""
        return len(self._server.server_state.connections)

    async def __aexit__(self, *_: object) -> None:
        self._server.should_exit = True
        await self._task

    async def _answer(self, scope: Scope, _: Receive, send: Send) -> None:
        status, body, media_type = self._found(scope)
        headers = [(b"content-type", media_type.encode()), (b"content-length", str(len(body)).encode())]
        if status == 405:
            headers.append((b"allow", b"GET, HEAD"))
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else body})

    def _found(self, scope: Scope) -> tuple[int, bytes, str]:
        path = scope["path"]
        if path not in ("/metrics", "/healthz", "/readyz"):
            return 404, b"there are /metrics, /healthz and /readyz\n", _TEXT
        if scope["method"] not in ("GET", "HEAD"):
            return 405, b"only GET and HEAD\n", _TEXT
        if path == "/metrics":
            accepted = [value.decode("latin-1") for name, value in scope["headers"] if name == b"accept"]
            return 200, *self._page(",".join(accepted))
        if path == "/healthz":
            uptime = round(time.monotonic() - self._begun, 3)
            return 200, _json({"broker": self._broker, "uptime_seconds": uptime}), _JSON
        reasons = list(self._hindrances())
        return 503 if reasons else 200, _json({"ready": not reasons, "reasons": reasons}), _JSON


class _Reader(H11Protocol):
    """Connections that ask nothing, or very slowly, keep nobody else from asking: each has an open file of the broker,
    and there are only so many."""

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._wait()
        here = [one for one in self.connections if isinstance(one, _Reader) and not one.transport.is_closing()]
        silent = [one for one in here if one.is_silent]
        if len(here) > _READERS and silent:
            min(silent, key=lambda one: one.since).transport.abort()

    @property
    def is_silent(self) -> bool:
        return self.cycle is None or self.cycle.response_complete

    def _wait(self) -> None:
        self.since = self.loop.time()
        self._late = self.loop.call_later(_PATIENCE, self._give_up)

    def _give_up(self) -> None:
        if self.is_silent:
            self.transport.abort()

    def on_response_complete(self) -> None:
        self._late.cancel()
        self._wait()
        super().on_response_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        self._late.cancel()
        super().connection_lost(exc)


class _Server(uvicorn.Server):
    """Signals are the broker's."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def _opened(address: Address) -> socket.socket:
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    try:
        return socket.create_server(address, family=family)
    except OSError as error:
        told = "somebody listens there already" if error.errno == errno.EADDRINUSE else error.strerror or error
        raise InvalidValueError(f"http.listen: {address} cannot be opened: {told}; name another address") from None


def _json(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode() + b"\n"
