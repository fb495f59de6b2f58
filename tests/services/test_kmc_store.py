"""A centre's folder: sealed, durable, and never wrong without saying so."""

import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from tests.security.kmc_world import DAY, KMC, LIST, NOW, identity, record
from tests.sizes import sized
from tidings.journal.disk import Disk
from tidings.model.errors import (
    InvalidValueError,
    JournalDamagedError,
    JournalError,
    JournalLockedError,
    SecurityError,
)
from tidings.security.ca.identity import Identity
from tidings.security.encoding import encode_canonical
from tidings.security.kmc.state import EpochAdded, changes_data
from tidings.security.rpc import kmc_messages
from tidings.security.vault import Vault, new_key_file, read_key_file
from tidings.services.kmc_store import KmcStore

KEY = bytes(range(32))


def found(folder: Path) -> KmcStore:
    return KmcStore.create(folder, KMC, Vault.make(None, KEY))


def reopened(folder: Path) -> KmcStore:
    return KmcStore.open(folder, lambda lock: Vault.unlock(lock, None, KEY))


def decide(folder: KmcStore, kind: str, body: object, who: Identity = KMC) -> None:
    reply = folder.commit(folder.centre.decide(who.certificate, kind, encode_canonical(body), NOW), NOW)
    assert reply.refused is None, reply.refused


def with_topic(folder: KmcStore, rotations: int = 3) -> None:
    folder.commit(folder.centre.revocations(LIST, NOW), NOW)
    decide(folder, kmc_messages.TOPIC, kmc_messages.RegisterTopicRequest(record().data), identity("owner"))
    decide(folder, kmc_messages.GRANT, kmc_messages.GrantRequest(record().id, "p", 3, NOW + DAY))
    for _ in range(rotations):
        decide(folder, kmc_messages.ROTATE, kmc_messages.RotateRequest(record().id, True))


def files(folder: Path) -> list[Path]:
    return [one for one in folder.rglob("*") if one.is_file() and one.name != "lock"]


def test_what_was_committed_is_there_again(tmp_path: Path) -> None:
    with found(tmp_path / "kmc") as folder:
        with_topic(folder)
        before = changes_data(folder.centre.snapshot())
        service = folder.centre.service
    with reopened(tmp_path / "kmc") as folder:
        assert changes_data(folder.centre.snapshot()) == before
        assert (folder.centre.service.topic, folder.centre.service.kem) == (service.topic, service.kem)


def test_no_key_can_be_found_in_any_file(tmp_path: Path) -> None:
    with found(tmp_path / "kmc") as folder:
        with_topic(folder)
        kept = list(folder.centre.snapshot())
        secret = [one.key.key for one in kept if isinstance(one, EpochAdded)] + [folder.centre.key.private_bytes_raw()]
        folder.snapshot()
    everything = b"".join(one.read_bytes() for one in files(tmp_path / "kmc"))
    assert len(secret) == 5
    for one in (*secret, KEY, b"Sports=NBA"):
        assert one not in everything
        assert one.hex().encode() not in everything


def test_a_snapshot_stands_for_the_changes_before_it(tmp_path: Path) -> None:
    with found(tmp_path / "kmc") as folder:
        with_topic(folder)
        folder.snapshot()
        decide(folder, kmc_messages.ROTATE, kmc_messages.RotateRequest(record().id, True))
        before = changes_data(folder.centre.snapshot())
    with reopened(tmp_path / "kmc") as folder:
        assert changes_data(folder.centre.snapshot()) == before


def test_a_folder_has_one_writer(tmp_path: Path) -> None:
    with found(tmp_path / "kmc"), pytest.raises(JournalLockedError):
        reopened(tmp_path / "kmc")


def test_another_key_opens_nothing(tmp_path: Path) -> None:
    found(tmp_path / "kmc").close()
    with pytest.raises(InvalidValueError, match="is not the one that sealed this"):
        KmcStore.open(tmp_path / "kmc", lambda lock: Vault.unlock(lock, None, bytes(32)))


def test_a_folder_that_has_a_centre_gets_no_other_one(tmp_path: Path) -> None:
    found(tmp_path / "kmc").close()
    with pytest.raises(InvalidValueError, match="has the state of a key management centre already"):
        found(tmp_path / "kmc")


class Dying(Disk):
    """After so many steps, nothing more is done."""

    def __init__(self, steps: int) -> None:
        self._left = steps

    def _step(self) -> None:
        self._left -= 1
        if self._left < 0:
            raise KeyboardInterrupt

    def write(self, fd: int, data: bytes) -> None:
        self._step()
        super().write(fd, data)

    def sync(self, fd: int) -> None:
        self._step()
        super().sync(fd)

    def rename(self, path: Path, to: Path) -> None:
        self._step()
        super().rename(path, to)


def test_a_centre_whose_making_is_interrupted_is_none_and_says_so(tmp_path: Path) -> None:
    interrupted = 0
    while True:
        path = tmp_path / str(interrupted)
        try:
            KmcStore.create(path, KMC, Vault.make(None, KEY), disk=Dying(interrupted)).close()
            break
        except KeyboardInterrupt:
            interrupted += 1
        if (path / "vault").exists():  # only that its name will stay was not certain yet
            reopened(path).close()
            continue
        with pytest.raises(InvalidValueError, match="is no key management centre"):
            reopened(path)
        if (path / "state").exists():
            with pytest.raises(InvalidValueError, match="interrupted, remove the folder and make it anew"):
                found(path)
        else:
            found(path).close()
    assert interrupted > 10
    with reopened(path) as whole:
        assert whole.centre.service


def test_a_folder_without_a_centre_says_so(tmp_path: Path) -> None:
    with pytest.raises(InvalidValueError, match=r"is no key management centre: .*tidings kmc init"):
        reopened(tmp_path)


def test_any_changed_byte_of_the_state_is_found_out(tmp_path: Path) -> None:
    with found(tmp_path / "kmc") as folder:
        with_topic(folder)
    (log,) = (tmp_path / "kmc" / "state" / "log").glob("*.log")
    data, chance = log.read_bytes(), random.Random(7)
    for _ in range(sized(25, 200)):
        position = chance.randrange(len(data))
        log.write_bytes(data[:position] + bytes([data[position] ^ 1 << chance.randrange(8)]) + data[position + 1 :])
        with pytest.raises(JournalError):
            reopened(tmp_path / "kmc")
    log.write_bytes(data)
    reopened(tmp_path / "kmc").close()


def test_what_was_acknowledged_cannot_be_cut_off_unseen(tmp_path: Path) -> None:
    with found(tmp_path / "kmc") as folder:
        with_topic(folder)
    (log,) = (tmp_path / "kmc" / "state" / "log").glob("*.log")
    data, chance = log.read_bytes(), random.Random(7)
    for _ in range(sized(15, 100)):
        log.write_bytes(data[: chance.randrange(len(data))])
        with pytest.raises(JournalError):
            reopened(tmp_path / "kmc")


def test_what_was_never_finished_is_cut_off(tmp_path: Path) -> None:
    with found(tmp_path / "kmc") as folder:
        with_topic(folder)
        before = changes_data(folder.centre.snapshot())
    (log,) = (tmp_path / "kmc" / "state" / "log").glob("*.log")
    with log.open("ab") as file:
        file.write(b"TdnR\x20")
    with reopened(tmp_path / "kmc") as folder:
        assert changes_data(folder.centre.snapshot()) == before


def test_records_cannot_change_their_places(tmp_path: Path) -> None:
    vault = Vault(KEY)
    sealed = vault.seal("change 1", b"data")
    assert vault.open("change 1", sealed) == b"data"
    with pytest.raises(Exception, match="was not sealed here, or has been changed"):
        vault.open("change 2", sealed)


def test_a_vault_of_a_passphrase() -> None:
    made, lock = Vault.make(b"words", None, work=2**10)
    sealed = made.seal("here", b"data")
    assert Vault.unlock(lock, b"words", None).open("here", sealed) == b"data"
    for wrong in (b"other words", b"", None):
        with pytest.raises(InvalidValueError, match="passphrase"):
            Vault.unlock(lock, wrong, None)
    work, *rest = msgspec.msgpack.decode(lock)
    with pytest.raises(SecurityError, match="more work"):
        Vault.unlock(encode_canonical((work * 2**11, *rest)), b"words", None)


def test_the_file_of_a_key_is_for_its_owner_only(tmp_path: Path) -> None:
    path = tmp_path / "key"
    assert read_key_file_after(path) == read_key_file(path)
    with pytest.raises(InvalidValueError, match="is there already"):
        new_key_file(path)
    path.chmod(0o640)
    with pytest.raises(InvalidValueError, match="others can read this secret"):
        read_key_file(path)
    path.chmod(0o600)
    path.write_text("abc")
    with pytest.raises(InvalidValueError, match="holds no key"):
        read_key_file(path)


def read_key_file_after(path: Path) -> bytes:
    key = new_key_file(path)
    assert path.stat().st_mode & 0o777 == 0o600
    return key


# Killed at any moment: the child writes a line for whatever it could have told somebody.

CHILD = """
import sys
from pathlib import Path
from tidings.security.rpc import kmc_messages
from tidings.security.encoding import encode_canonical
from tidings.security.vault import Vault
from tidings.services.kmc_store import KmcStore

folder = KmcStore.open(Path(sys.argv[1]), lambda lock: Vault.unlock(lock, None, bytes(range(32))))
topic, now = bytes.fromhex(sys.argv[2]), int(sys.argv[3])
own = folder.centre.identity.certificate
for number in range(10**9):
    kind, body = kmc_messages.ROTATE, kmc_messages.RotateRequest(topic, True)
    if number % 3 == 0:
        kind, body = kmc_messages.GRANT, kmc_messages.GrantRequest(topic, f"p{number}", 3, now + 10**12)
    folder.commit(folder.centre.decide(own, kind, encode_canonical(body), now), now)
    folder._since_snapshot += 500
    folder.tidy()
    latest = folder.centre._state.latest(topic)
    told = f"{latest.epoch} {latest.key.hex()} {folder.centre._state.topics[topic].granted}"
    sys.stdout.write(told + chr(10))
    sys.stdout.flush()
"""


@pytest.mark.process
def test_killed_at_any_moment_nothing_that_was_told_is_lost_and_no_epoch_has_two_keys(tmp_path: Path) -> None:
    with found(tmp_path / "kmc") as folder:
        with_topic(folder, 0)
    chance, epochs, granted = random.Random(11), dict[int, str](), 0
    for _ in range(sized(5, 40)):
        child = subprocess.Popen(
            [sys.executable, "-c", CHILD, str(tmp_path / "kmc"), record().id.hex(), str(NOW)],
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ,
        )
        assert child.stdout is not None
        lines = [child.stdout.readline() for _ in range(chance.randrange(1, 40))]
        os.kill(child.pid, signal.SIGKILL)
        lines += child.stdout.readlines()
        child.wait()
        child.stdout.close()
        for line in lines:
            if line.endswith("\n"):
                epoch, key, grants = line.split()
                assert epochs.setdefault(int(epoch), key) == key
                granted = max(granted, int(grants))
        with reopened(tmp_path / "kmc") as folder:
            kept = {one.key.epoch: one.key.key.hex() for one in folder.centre.snapshot() if isinstance(one, EpochAdded)}
            assert epochs.items() <= kept.items()
            assert folder.centre._state.topics[record().id].granted >= granted
            assert sorted(kept) == list(range(1, len(kept) + 1))
            assert len(set(kept.values())) == len(kept)


def test_damage_in_the_middle_names_the_file(tmp_path: Path) -> None:
    with found(tmp_path / "kmc") as folder:
        with_topic(folder)
    (log,) = (tmp_path / "kmc" / "state" / "log").glob("*.log")
    data = bytearray(log.read_bytes())
    data[len(data) // 2] ^= 1
    log.write_bytes(data)
    with pytest.raises(JournalDamagedError, match=r"\.log"):
        reopened(tmp_path / "kmc")
