"""The addresses of brokers, and the state of the connection to one, as programs, people and logs see it."""

import asyncio
import logging
import re
from collections.abc import Callable, Iterable
from inspect import iscoroutinefunction
from typing import Any, Literal, NamedTuple

import msgspec

from tidings.model.errors import InvalidValueError

DEFAULT_PORT = 7450
_ADDRESS = re.compile(
    r"(?:tidings://)?(?:\[(?P<six>[0-9A-Fa-f:.]+)\]|(?P<host>[^\s:\[\]/,]+))(?::(?P<port>[0-9]{1,5}))?/?"
)


class BrokerAddress(NamedTuple):
    """The host and port of a broker."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"tidings://{f'[{self.host}]' if ':' in self.host else self.host}:{self.port}"


def read_addresses(addresses: str | Iterable[str]) -> list[BrokerAddress]:
    """Parse one address, several separated by commas, or a list; return them in the order in which they are tried.

    Raises:
        InvalidValueError: There is no address, or one is malformed.
    """
    texts = addresses.split(",") if isinstance(addresses, str) else list(addresses)
    if not texts:
        raise InvalidValueError("address: at least one, such as tidings://127.0.0.1:7450")
    return [_read(text) for text in texts]


def _read(text: str) -> BrokerAddress:
    match = _ADDRESS.fullmatch(text.strip()) if isinstance(text, str) else None
    port = int(match["port"]) if match and match["port"] else DEFAULT_PORT
    if match is None or not 0 < port < 65_536:
        raise InvalidValueError(f"{text!r:.80} is not an address; write tidings://host:port")
    return BrokerAddress(match["six"] or match["host"], port)


_LOG = logging.getLogger("tidings.client")


class ConnectionState(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a client's connection since its last change.

    Attributes:
        state: `connecting` while an attempt is under way, `connected`, `disconnected` between two attempts, and
            `closed` when no attempt will follow.
        address: The broker's address, as `tidings://host:port`.
        broker: The broker's name; empty before the first connection.
        reason: Why the client is not connected: the end of the last connection or attempt, or of the client.
        attempt: The number of attempts since the last connection.
        retry_seconds: While disconnected, the seconds until the next attempt.
        connections: The number of connections so far. It rises by one with each, so that a program that missed a
            short disconnection sees that there was one.
    """

    state: Literal["connecting", "connected", "disconnected", "closed"]
    address: str
    broker: str = ""
    reason: str | None = None
    attempt: int = 0
    retry_seconds: float | None = None
    connections: int = 0

    def __str__(self) -> str:
        place = f"{self.broker} at {self.address}" if self.broker else self.address
        match self.state:
            case "connecting":
                return f"connecting to {place}, attempt {self.attempt}"
            case "connected":
                return f"connected to {place}"
            case "disconnected":
                retry = "" if self.retry_seconds is None else f"; next attempt in {self.retry_seconds:.2g} s"
                return f"disconnected from {place}: {self.reason}{retry}"
            case "closed":
                return f"closed: {self.reason}"


OnState = Callable[[ConnectionState], Any]


class ConnectionStates:
    """Publishes changes of the connection's state to the log, to a function, and to tasks that wait for a change.

    Only the latest state is stored: a slow reader misses states, and costs no memory.
    """

    def __init__(self, client: str, address: str, on_state: OnState | None) -> None:
        if on_state is not None and not _is_plain_function(on_state):
            raise InvalidValueError("on_state: a function of a state that is not asynchronous; states() can be awaited")
        self._client, self._on_state = client, on_state
        self.latest = ConnectionState(state="disconnected", address=address, reason="the client is not open")
        self._change = asyncio.Event()  # set at the next change; each change has its own event

    def set(self, state: ConnectionState, level: int = logging.INFO) -> None:
        """Change the state, and log it at `level`."""
        self.latest = state
        change, self._change = self._change, asyncio.Event()
        change.set()
        _LOG.log(level, "client %s: %s", self._client, state, extra={"connection_state": state})
        if self._on_state is None:
            return
        try:
            self._on_state(state)
        except Exception:
            _LOG.exception("the function on_state of the client %s raised", self._client)

    async def after(self, seen: ConnectionState | None) -> ConnectionState:
        """Wait until the state differs from `seen`, and return it; a `closed` state returns at once."""
        while self.latest is seen and self.latest.state != "closed":
            await self._change.wait()
        return self.latest


def _is_plain_function(function: Any) -> bool:
    """Return whether the function is callable and not asynchronous, so that calling it does its work."""
    return callable(function) and not (iscoroutinefunction(function) or iscoroutinefunction(type(function).__call__))
