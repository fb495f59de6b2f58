"""An authority, identities and a key management centre of earlier versions are opened, and go on."""

from pathlib import Path

import pytest

from tests.compatibility.contents import decide, epoch_keys, fetch_keys, member_of
from tests.compatibility.release import Release
from tests.compatibility.write_fixtures import PASSPHRASE
from tests.journal.cases import NOW
from tidings import ContextFilter
from tidings.journal import Journal
from tidings.model.errors import SecurityError
from tidings.security import Credentials, Gate, Identity, Right, Role, TopicRecord
from tidings.security.ca.revocation import RevocationUpdate
from tidings.security.rpc import kmc_messages
from tidings.security.vault import Vault
from tidings.services.authority_store import PUBLISHED, AuthorityStore, read_listing
from tidings.services.kmc_store import KmcStore


@pytest.fixture
def folder(release: Release, tmp_path: Path) -> Path:
    return release.unpack("security", tmp_path / "security")


def open_centre(folder: Path) -> KmcStore:
    return KmcStore.open(folder / "kmc", lambda lock: Vault.unlock(lock, PASSPHRASE, None))


def revocations(folder: Path) -> RevocationUpdate:
    return RevocationUpdate.read((folder / "ca" / PUBLISHED).read_bytes())


def topic(folder: Path) -> TopicRecord:
    return TopicRecord((folder / "nba.record").read_bytes())


def test_the_authority_knows_whom_it_issued_and_revoked(release: Release, folder: Path) -> None:
    expected = release.expected("security")
    with AuthorityStore.open(folder / "ca", lambda: PASSPHRASE) as authority:
        fresh = authority.issue("car-1", Role.ENTITY, NOW)
        authority.revoke("player", NOW, reason="left")
        update = authority.publish(NOW)
    listed = read_listing(folder / "ca")
    issued = {one.name: [one.role.value, one.serial.hex()] for one in listed}
    assert issued.pop("car-1") == ["entity", listed[-1].serial.hex()]
    assert issued == expected["issued"]
    assert {one.name: one.revoked.reason for one in listed if one.revoked} == {**expected["revoked"], "player": "left"}
    credentials = Credentials(Identity.load(folder / "coach").anchor)
    credentials.revoke(update)
    credentials.anchor.check(fresh.certificate, NOW, Role.ENTITY)
    credentials.revocations.check(fresh.certificate, NOW)
    with pytest.raises(SecurityError, match="revoked"):
        credentials.revocations.check(Identity.load(folder / "player").certificate, NOW)


def test_the_centre_has_its_keys(release: Release, folder: Path) -> None:
    expected = release.expected("security")
    with open_centre(folder) as centre:
        assert epoch_keys(centre) == expected["epochs"]
        coach = Identity.load(folder / "coach")
        decide(centre, coach, kmc_messages.ROTATE, kmc_messages.RotateRequest(topic(folder).id, compromised=True))
    with open_centre(folder) as centre:
        keys = epoch_keys(centre)
        assert keys.keys() == {"1", "2", "3"}
        assert {epoch: keys[epoch] for epoch in ("1", "2")} == expected["epochs"]


def test_a_sealed_event_is_trusted_and_opened(release: Release, folder: Path) -> None:
    with Journal.open(folder / "journal", create=False) as journal:
        (record,) = journal.read()
    sealed = record.operation.event(ContextFilter.parse)
    expected = release.expected("security")["payload"].encode()
    assert sealed.payload is not None
    assert expected not in sealed.payload
    member = member_of(Identity.load(folder / "player"), topic(folder), revocations(folder))
    with open_centre(folder) as centre:
        coach = Identity.load(folder / "coach")
        grant = kmc_messages.GrantRequest(
            topic(folder).id, "player", int(Right.SUBSCRIBE), NOW + 86_400_000_000, history=True
        )
        decide(centre, coach, kmc_messages.GRANT, grant)
        fetch_keys(centre, member, topic(folder))
    assert member.open(sealed, NOW).payload == expected
    Gate(member.credentials).admit(sealed, NOW)
