"""Where brokers are: addresses such as `tidings://127.0.0.1:7450`, one or several to try."""

import re
from collections.abc import Iterable
from typing import NamedTuple

from tidings.model.errors import InvalidValueError

DEFAULT_PORT = 7450
_ADDRESS = re.compile(
    r"(?:tidings://)?(?:\[(?P<six>[0-9A-Fa-f:.]+)\]|(?P<host>[^\s:\[\]/,]+))(?::(?P<port>[0-9]{1,5}))?/?"
)


class BrokerAddress(NamedTuple):
    host: str
    port: int

    def __str__(self) -> str:
        return f"tidings://{f'[{self.host}]' if ':' in self.host else self.host}:{self.port}"


def read_addresses(given: str | Iterable[str]) -> list[BrokerAddress]:
    """One address, several with commas between them, or a list of them; in the order in which they are tried."""
    texts = given.split(",") if isinstance(given, str) else list(given)
    if not texts:
        raise InvalidValueError("address: at least one, such as tidings://127.0.0.1:7450")
    return [_read(one) for one in texts]


def _read(text: str) -> BrokerAddress:
    found = _ADDRESS.fullmatch(text.strip()) if isinstance(text, str) else None
    port = int(found["port"]) if found and found["port"] else DEFAULT_PORT
    if found is None or not 0 < port < 65_536:
        raise InvalidValueError(f"{text!r:.80} is not an address; write tidings://host:port")
    return BrokerAddress(found["six"] or found["host"], port)
