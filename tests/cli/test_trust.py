"""`tidings trust` as its user meets it: a secret is made, asked for, given and taken."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.broker.certified import Certified
from tidings.cli.actions import trust
from tidings.model.errors import InvalidValueError, SecurityError
from tidings.security.trust_group import TrustGroup


def test_a_secret_is_made_asked_for_given_and_taken(tmp_path: Path) -> None:
    given = Certified(tmp_path)
    for name in ("b1", "b2"):
        given.tls(name)
    secret, asked, key = tmp_path / "G.secret", tmp_path / "b2.request", tmp_path / "b2.key"
    answer, joined = tmp_path / "b2.answer", tmp_path / "joined.secret"
    trust.init("G", secret)
    trust.ask("G", tmp_path / "b2", asked, key)
    assert [one.stat().st_mode & 0o777 for one in (secret, key)] == [0o600, 0o600]
    with pytest.raises(SecurityError, match="not among those"):
        trust.invite("G", secret, tmp_path / "b1", asked, ["b3"], answer)
    trust.invite("G", secret, tmp_path / "b1", asked, ["b2"], answer)
    trust.join(answer, tmp_path / "b2", asked, key, joined, ["b1"])
    assert joined.read_bytes() == secret.read_bytes()
    assert joined.stat().st_mode & 0o777 == 0o600
    assert not key.exists()
    TrustGroup.load("G", joined)


def test_no_file_is_written_over(tmp_path: Path) -> None:
    there = tmp_path / "there"
    there.write_text("kept")
    acts: list[Callable[[], None]] = [
        lambda: trust.init("G", there),
        lambda: trust.ask("G", tmp_path, there, tmp_path / "key"),
        lambda: trust.ask("G", tmp_path, tmp_path / "request", there),
        lambda: trust.join(there, tmp_path, there, there, there, []),
    ]
    for act in acts:
        with pytest.raises(InvalidValueError, match="exists already"):
            act()
    assert there.read_text() == "kept"
