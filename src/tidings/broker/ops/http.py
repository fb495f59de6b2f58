"""The HTTP port of a broker: `/metrics`, `/healthz` and `/readyz`."""

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

from tidings.broker.config import Address
from tidings.model.errors import InvalidValueError

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Any]]
Send = Callable[[Any], Awaitable[None]]
_TEXT, _JSON = "text/plain; charset=utf-8", "application/json"
_MAX_CONNECTIONS = 64  # connections, above which the one that was idle longest is closed
_PATIENCE = 10.0  # seconds in which a complete request must have come


class HttpPort:
    """Serves metrics, health and readiness in the broker's event loop, while its `async with` block runs.

    Args:
        listen: The address; port 0 picks a free one, which `address` then has.
        broker: The broker's name.
        page: Returns the metrics page and its media type, for the value of an Accept header.
        not_ready_reasons: Returns the reasons why the broker is not ready.
    """

    def __init__(
        self,
        listen: Address,
        broker: str,
        page: Callable[[str], tuple[bytes, str]],
        not_ready_reasons: Callable[[], Sequence[str]],
    ) -> None:
        self.address = listen  # has the actual port once the port is open
        self._broker, self._page, self._not_ready_reasons = broker, page, not_ready_reasons
        self._started = time.monotonic()

    async def __aenter__(self) -> Self:
        listening = _open_socket(self.address)
        host, port = listening.getsockname()[:2]
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
                limit_concurrency=_MAX_CONNECTIONS + 1,
                timeout_graceful_shutdown=1,
            )
        )
        # Until the server runs, connections wait in the socket's queue.
        self._task = asyncio.create_task(self._server.serve(sockets=[listening]), name="http")
        return self

    @property
    def connection_count(self) -> int:
        """The number of connections that are open now."""
        return len(self._server.server_state.connections)

    async def __aexit__(self, *_: object) -> None:
        self._server.should_exit = True
        await self._task

    async def _answer(self, scope: Scope, _: Receive, send: Send) -> None:
        status, body, media_type = self._respond(scope)
        headers = [(b"content-type", media_type.encode()), (b"content-length", str(len(body)).encode())]
        if status == 405:
            headers.append((b"allow", b"GET, HEAD"))
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else body})

    def _respond(self, scope: Scope) -> tuple[int, bytes, str]:
        path = scope["path"]
        if path not in ("/metrics", "/healthz", "/readyz"):
            return 404, b"there are /metrics, /healthz and /readyz\n", _TEXT
        if scope["method"] not in ("GET", "HEAD"):
            return 405, b"only GET and HEAD\n", _TEXT
        if path == "/metrics":
            accepted = [value.decode("latin-1") for name, value in scope["headers"] if name == b"accept"]
            return 200, *self._page(",".join(accepted))
        if path == "/healthz":
            uptime = round(time.monotonic() - self._started, 3)
            return 200, _json({"broker": self._broker, "uptime_seconds": uptime}), _JSON
        reasons = list(self._not_ready_reasons())
        return 503 if reasons else 200, _json({"ready": not reasons, "reasons": reasons}), _JSON


class _Reader(H11Protocol):
    """A connection that is closed if it sends no complete request in time.

    Each connection takes one of the broker's open files. If there are too many, the one that has been idle longest is
    closed.
    """

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._wait()
        connections = [
            connection
            for connection in self.connections
            if isinstance(connection, _Reader) and not connection.transport.is_closing()
        ]
        idle = [connection for connection in connections if connection.is_silent]
        if len(connections) > _MAX_CONNECTIONS and idle:
            min(idle, key=lambda connection: connection.since).transport.abort()

    @property
    def is_silent(self) -> bool:
        """Whether no request is being answered on the connection."""
        return self.cycle is None or self.cycle.response_complete

    def _wait(self) -> None:
        self.since = self.loop.time()
        self._request_timer = self.loop.call_later(_PATIENCE, self._give_up)

    def _give_up(self) -> None:
        if self.is_silent:
            self.transport.abort()

    def on_response_complete(self) -> None:
        self._request_timer.cancel()
        self._wait()
        super().on_response_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        self._request_timer.cancel()
        super().connection_lost(exc)


class _Server(uvicorn.Server):
    """A uvicorn server that leaves signal handlers to the broker."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def _open_socket(address: Address) -> socket.socket:
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    try:
        return socket.create_server(address, family=family)
    except OSError as error:
        reason = "another program listens there already" if error.errno == errno.EADDRINUSE else error.strerror or error
        raise InvalidValueError(f"http.listen: {address} cannot be opened: {reason}; name another address") from None


def _json(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode() + b"\n"
