"""Brokers and clients with certificates of one authority, in a folder."""

import time
from pathlib import Path
from typing import Any

from tidings.client import TlsIdentity
from tidings.security.ca.authority import Authority
from tidings.security.ca.certificates import Role
from tidings.security.ca.identity import AUTHORITY, CERTIFICATE, KEY


class Certified:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._authority = Authority.found("authority", self._now())

    @staticmethod
    def _now() -> int:
        return time.time_ns() // 1000

    def _issued(self, name: str, role: Role) -> Path:
        path = self._folder / name
        if not path.exists():
            self._authority.issue(name, role, self._now(), hosts=("127.0.0.1",)).save(path)
        return path

    def tls(self, broker: str) -> dict[str, Any]:
        """The table of a broker's configuration."""
        path = self._issued(broker, Role.BROKER)
        return {"certificate": str(path / CERTIFICATE), "key": str(path / KEY), "authority": str(path / AUTHORITY)}

    def client(self, name: str) -> TlsIdentity:
        path = self._issued(name, Role.ENTITY)
        return TlsIdentity(path / AUTHORITY, path / CERTIFICATE, path / KEY)
