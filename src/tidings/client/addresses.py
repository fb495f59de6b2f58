"""Parses addresses of brokers, such as `tidings://127.0.0.1:7450`."""

import re
from collections.abc import Iterable
from typing import NamedTuple

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
