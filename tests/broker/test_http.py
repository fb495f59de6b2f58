"""The port for those who watch, asked over real sockets."""

import asyncio
import contextlib
import json
import signal
import socket
import urllib.error
import urllib.request
from collections.abc import Awaitable, Callable
from email.message import Message

import pytest

from tidings.broker.config import Address
from tidings.broker.metrics import Gauges, Metrics
from tidings.broker.ops import http
from tidings.broker.ops.http import HttpPort
from tidings.broker.ops.prometheus import PrometheusPage
from tidings.model.errors import InvalidValueError

Answer = tuple[int, bytes, Message]
Ask = Callable[..., Awaitable[Answer]]


def asked(address: Address, path: str, method: str = "GET", **headers: str) -> Answer:
    request = urllib.request.Request(f"http://{address}{path}", method=method, headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:  # noqa: S310
            return answer.status, answer.read(), answer.headers
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read(), error.headers


def with_port(use: Callable[[Ask], Awaitable[None]], reasons: list[str] | None = None, host: str = "127.0.0.1") -> None:
    """Opens a port, hands `use` a way to ask it, and closes it."""

    async def run() -> None:
        metrics = Metrics()
        metrics.operations.accepted = 3
        page = PrometheusPage("b1", metrics, Gauges).page
        async with HttpPort(Address(host, 0), "b1", page, lambda: reasons or []) as port:
            assert port.address.port != 0
            await use(lambda *given, **headers: asyncio.to_thread(asked, port.address, *given, **headers))
        with pytest.raises(urllib.error.URLError):
            await asyncio.to_thread(asked, port.address, "/healthz")

    asyncio.run(run())


def test_metrics_are_served() -> None:
    async def use(ask: Ask) -> None:
        status, body, headers = await ask("/metrics")
        assert status == 200
        assert b'tidings_publications_total{outcome="accepted"} 3.0' in body
        assert headers["content-type"].startswith("text/plain")
        _, body, _ = await ask("/metrics", Accept="application/openmetrics-text; version=1.0.0")
        assert body.endswith(b"# EOF\n")

    with_port(use)


def test_a_broker_that_is_not_ready_is_alive_and_says_why() -> None:
    reasons = ["the link to b2 is down"]

    async def use(ask: Ask) -> None:
        status, body, _ = await ask("/healthz")
        assert status == 200
        told = json.loads(body)
        assert told["broker"] == "b1"
        assert told["uptime_seconds"] >= 0
        status, body, _ = await ask("/readyz")
        assert (status, json.loads(body)) == (503, {"ready": False, "reasons": ["the link to b2 is down"]})
        reasons.clear()
        status, body, headers = await ask("/readyz")
        assert (status, json.loads(body)) == (200, {"ready": True, "reasons": []})
        assert headers["content-type"] == "application/json"

    with_port(use, reasons)


def test_other_pages_and_other_methods_are_refused() -> None:
    async def use(ask: Ask) -> None:
        assert (await ask("/"))[0] == 404
        status, _, headers = await ask("/metrics", "POST")
        assert (status, headers["allow"]) == (405, "GET, HEAD")
        status, body, headers = await ask("/healthz", "HEAD")
        assert (status, body) == (200, b"")
        assert int(headers["content-length"]) > 0

    with_port(use)


def test_it_listens_on_ipv6_too() -> None:
    async def use(ask: Ask) -> None:
        assert (await ask("/healthz"))[0] == 200

    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        pytest.skip("there is no IPv6 here")
    with_port(use, host="::1")


def test_a_port_that_is_taken_is_told() -> None:
    async def run(address: Address) -> None:
        async with HttpPort(address, "b1", lambda _: (b"", ""), list):
            pass

    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = Address(*taken.getsockname())
        with pytest.raises(InvalidValueError, match=f"http.listen: {address} cannot be opened"):
            asyncio.run(run(address))


def test_signals_stay_with_the_broker() -> None:
    before = signal.getsignal(signal.SIGTERM)

    async def use(ask: Ask) -> None:
        await ask("/healthz")
        assert signal.getsignal(signal.SIGTERM) is before

    with_port(use)


def test_half_a_request_does_not_keep_it_from_closing() -> None:
    async def use(ask: Ask) -> None:
        await ask("/healthz")

    async def run() -> None:
        async with HttpPort(Address("127.0.0.1", 0), "b1", lambda _: (b"", ""), list) as port:
            reader, writer = await asyncio.open_connection(*port.address)
            writer.write(b"GET /metrics HTTP/1.1\r\nHost: b1\r\n")
            await writer.drain()
            await asyncio.to_thread(asked, port.address, "/healthz")
        assert await reader.read() == b""
        writer.close()

    with_port(use)
    asyncio.run(run())


def test_connections_that_ask_nothing_keep_nobody_from_asking() -> None:
    async def run() -> None:
        async with HttpPort(Address("127.0.0.1", 0), "b1", lambda _: (b"", "text/plain"), list) as port:
            silent = [await asyncio.open_connection(*port.address) for _ in range(200)]
            for _, writer in silent[::2]:
                writer.write(b"GET /healthz HTTP/1.1\r\nHost: slow\r\n")
            status, _, _ = await asyncio.to_thread(asked, port.address, "/healthz")
            assert status == 200
            assert port.connection_count <= 65
            for _, writer in silent:
                writer.transport.abort()

    asyncio.run(run())


def test_who_asks_too_slowly_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "_PATIENCE", 0.05)

    async def run() -> None:
        async with HttpPort(Address("127.0.0.1", 0), "b1", lambda _: (b"", "text/plain"), list) as port:
            reader, writer = await asyncio.open_connection(*port.address)
            writer.write(b"GET /healthz HTTP/1.1\r\nHost: slow\r\n")
            with contextlib.suppress(ConnectionError):
                assert await asyncio.wait_for(reader.read(), 60) == b""
            writer.close()

    asyncio.run(run())
