"""Where something listens: a host and a port, as one text."""

import ipaddress
import re
from typing import NamedTuple

from tidings.model.errors import InvalidValueError

_TEXT = re.compile(r"(?:\[(?P<six>[0-9A-Fa-f:.]+)\]|(?P<host>[^\s:\[\]/]+)):(?P<port>[0-9]{1,5})")


class Address(NamedTuple):
    """Port 0 stands for any that is free."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> "Address":
        found = _TEXT.fullmatch(text)
        if found is None or int(found["port"]) > 65_535:
            raise InvalidValueError(f"'{text}' is no address; write a host and a port, as in 127.0.0.1:7450")
        return cls(found["six"] or found["host"], int(found["port"]))

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def is_loopback(self) -> bool:
        """Whether nobody outside this machine can reach it. A name other than localhost may stand for anything."""
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"
