"""An authority killed at random moments: nothing that it said is lost, and no serial number is given twice."""

import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.sizes import sized
from tidings.security.ca.certificates import Role
from tidings.security.tokens.credentials import Credentials
from tidings.services.authority_store import AuthorityStore

pytestmark = pytest.mark.process

LIVES = sized(5, 60)


def test_killed_at_random_moments(tmp_path: Path) -> None:
    folder, draw = tmp_path / "ca", random.Random(7)
    issued: dict[str, str] = {}
    revoked: set[str] = set()
    published = 0
    for life in range(LIVES):
        words = [sys.executable, "-m", "tests.services.mortal_authority", str(folder), str(life)]
        with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            lines = [process.stdout.readline()]  # it lives
            time.sleep(draw.uniform(0, 0.15))
            process.kill()
            lines += process.stdout.readlines()
        for line in lines:
            if line.endswith("\n"):
                what, name, value = line.split()
                if what == "issued":
                    assert value not in issued.values()
                    issued[name] = value
                elif what == "revoked":
                    revoked.add(value)
                else:
                    published = max(published, int(value))
        with AuthorityStore.open(folder, lambda: None) as again:
            known = {one.name: one.serial.hex() for one in again.authority.issued}
            assert issued.items() <= known.items()
            assert len({one.serial for one in again.authority.issued}) == len(again.authority.issued)
            assert revoked <= {one.serial.hex() for one in again.authority.revoked}
            credentials = Credentials(again.authority.anchor)
            credentials.revoke(again.publish(time.time_ns() // 1000))
            assert credentials.revocations.version == len(again.authority.revoked) >= published
            assert again.issue(f"last-{life}", Role.ENTITY, time.time_ns() // 1000).name == f"last-{life}"
    assert len(issued) > LIVES
