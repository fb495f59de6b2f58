"""A process that issues and revokes until it is killed, and says what is done, a line each."""

import sys
import time
from pathlib import Path

from tidings.security.ca.certificates import Role
from tidings.services.authority_store import AuthorityStore


def say(*words: object) -> None:
    sys.stdout.write(" ".join(map(str, words)) + "\n")
    sys.stdout.flush()


def live(path: Path, life: int) -> None:
    now = time.time_ns() // 1000
    if (path / "certificate.pem").exists():
        folder = AuthorityStore.open(path, lambda: None)
    else:
        folder = AuthorityStore.create(path, "example", now, None)
    for turn in range(1_000_000):
        name = f"car-{life}-{turn}"
        folder.issue(name, Role.ENTITY, now)
        say("issued", name, folder.authority.issued[-1].serial.hex())
        if turn % 3 == 0:
            entries = folder.revoke(name, now)
            say("revoked", name, entries[0].serial.hex())
            say("published", name, len(folder.publish(now).entries))


if __name__ == "__main__":
    live(Path(sys.argv[1]), int(sys.argv[2]))
