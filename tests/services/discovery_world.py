"""A small world of discovery, on disk: an authority, identities in folders, and nodes that run as processes."""

import contextlib
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from tidings.security.ca.authority import Authority
from tidings.security.ca.certificates import Role
from tidings.security.ca.identity import Identity
from tidings.security.topic_record import TopicRecord

PEOPLE = {"owner": Role.ENTITY, "reader": Role.ENTITY, "kmc-1": Role.KMC, "tdn-1": Role.TDN, "tdn-2": Role.TDN}


class DiscoveryWorld:
    is_plain = True  # its broker speaks no TLS

    def __init__(self, folder: Path) -> None:
        now = time.time_ns() // 1000
        self.folder, self.authority = folder, Authority.found("example", now)
        for name, role in PEOPLE.items():
            self.authority.issue(name, role, now).save(folder / name)
        self.authority.issue("b1", Role.BROKER, now, hosts=["127.0.0.1"]).save(folder / "b1")
        (folder / "revocations").write_bytes(self.authority.revocations(now).data)

    @property
    def plainly(self) -> list[str]:
        return ["--plain"] if self.is_plain else []

    def identity(self, name: str) -> Identity:
        return Identity.load(self.folder / name)

    def record(self, template: str, owner: str = "owner") -> TopicRecord:
        id = template.encode().ljust(16, b".")[:16]  # noqa: A001
        kmc = self.identity("kmc-1").certificate
        return TopicRecord.make(self.identity(owner), id=id, template=template, kmc=kmc)

    @contextlib.contextmanager
    def node(self, name: str, broker: str) -> Iterator["subprocess.Popen[str]"]:
        """A process of `tidings tdn serve`, once it serves."""
        words = [sys.executable, "-m", "tidings", "tdn", "serve", *self.plainly, "--json", "--broker", broker]
        words += ["--identity", str(self.folder / name), "--folder", str(self.folder / f"{name}-state")]
        words += ["--revocations", str(self.folder / "revocations")]
        with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
            try:
                assert process.stdout is not None
                assert json.loads(process.stdout.readline())["node"] == name
                yield process
            finally:
                process.kill()
