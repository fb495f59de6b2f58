"""Proofs of trust groups: good for one challenge between two ends, and for nothing else."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.sizes import examples
from tidings.model.errors import InvalidValueError, SecurityError
from tidings.security.trust_group import NONCE_BYTES, SECRET_BYTES, ConnectionEnds, TrustGroup

GROUP = TrustGroup("Restricted", bytes(range(SECRET_BYTES)))
ENDS = ConnectionEnds("b1", "b2", b"1" * 32, b"2" * 32)
ASKED, ANSWERED = b"a" * NONCE_BYTES, b"b" * NONCE_BYTES
PROOF = GROUP.prove(ENDS, ASKED, ANSWERED)

names = st.sampled_from(["b1", "b2", "b3", "b1b", "", "\x00"])
fingerprints = st.sampled_from([b"", b"1" * 32, b"2" * 32])
nonces = st.sampled_from([ASKED, ANSWERED, b"c" * NONCE_BYTES])


def test_who_holds_the_secret_proves_it() -> None:
    holder, stranger = TrustGroup(GROUP.name, bytes(range(SECRET_BYTES))), TrustGroup(GROUP.name, bytes(SECRET_BYTES))
    for ends in (ENDS, ConnectionEnds("b1", "b2")):
        GROUP.check(ends, ASKED, ANSWERED, holder.prove(ends, ASKED, ANSWERED))
        with pytest.raises(SecurityError):
            GROUP.check(ends, ASKED, ANSWERED, stranger.prove(ends, ASKED, ANSWERED))


@examples(200, 5_000)
@given(
    st.builds(ConnectionEnds, names, names, fingerprints, fingerprints),
    nonces,
    nonces,
    st.sampled_from(["Restricted", "R"]),
)
def test_a_proof_is_good_for_nothing_but_what_it_was_made_for(
    ends: ConnectionEnds, asked: bytes, answered: bytes, group: str
) -> None:
    checking = TrustGroup(group, bytes(range(SECRET_BYTES)))
    if (ends, asked, answered, group) == (ENDS, ASKED, ANSWERED, GROUP.name):
        return
    with pytest.raises(SecurityError):
        checking.check(ends, asked, answered, PROOF)


@pytest.mark.parametrize(
    ("ends", "asked", "answered", "proof"),
    [
        pytest.param(ConnectionEnds("b2", "b1", b"2" * 32, b"1" * 32), ASKED, ANSWERED, PROOF, id="reflected"),
        pytest.param(
            ConnectionEnds("b2", "b1", b"2" * 32, b"1" * 32), ANSWERED, ASKED, PROOF, id="reflected with nonces"
        ),
        pytest.param(ENDS._replace(challenger="b3"), ASKED, ANSWERED, PROOF, id="another challenger"),
        pytest.param(ENDS._replace(prover="b3"), ASKED, ANSWERED, PROOF, id="another prover"),
        pytest.param(ENDS._replace(challenger_certificate=b""), ASKED, ANSWERED, PROOF, id="without TLS"),
        pytest.param(ENDS._replace(prover_certificate=b"3" * 32), ASKED, ANSWERED, PROOF, id="another connection"),
        pytest.param(ENDS, b"c" * NONCE_BYTES, ANSWERED, PROOF, id="another challenge"),
        pytest.param(ENDS, ASKED, b"c" * NONCE_BYTES, PROOF, id="another nonce"),
        pytest.param(ENDS, ASKED, ANSWERED, PROOF[:-1], id="cut"),
        pytest.param(ENDS, ASKED, ANSWERED, b"", id="empty"),
        pytest.param(ENDS, b"", ANSWERED, GROUP.prove(ENDS, b"", ANSWERED), id="no challenge"),
        pytest.param(ENDS, ASKED, b"", GROUP.prove(ENDS, ASKED, b""), id="no nonce"),
        pytest.param(
            ENDS, ASKED, ANSWERED, TrustGroup.new("Restricted").prove(ENDS, ASKED, ANSWERED), id="another secret"
        ),
    ],
)
def test_what_is_no_proof_is_refused(ends: ConnectionEnds, asked: bytes, answered: bytes, proof: bytes) -> None:
    with pytest.raises(SecurityError):
        GROUP.check(ends, asked, answered, proof)


def test_a_secret_is_kept_in_a_file_and_never_shown(tmp_path: Path) -> None:
    made, path = TrustGroup.new("Restricted"), tmp_path / "secret"
    path.write_text("older")
    path.chmod(0o644)
    made.save(path)
    assert path.stat().st_mode & 0o777 == 0o600
    read = TrustGroup.load("Restricted", path)
    read.check(ENDS, ASKED, ANSWERED, made.prove(ENDS, ASKED, ANSWERED))
    secret = path.read_text().strip()
    assert len(secret) == 2 * SECRET_BYTES
    for shown in (repr(made), str(made), f"{made}"):
        assert secret not in shown
        assert "Restricted" in shown
    path.write_text(secret[:-2] + "zz")
    with pytest.raises(InvalidValueError) as refused:
        TrustGroup.load("Restricted", path)
    assert secret[:8] not in str(refused.value)


@pytest.mark.parametrize("secret", [b"", b"short", bytes(SECRET_BYTES + 1)])
def test_a_secret_of_another_size_is_refused(secret: bytes) -> None:
    with pytest.raises(InvalidValueError, match="32 bytes"):
        TrustGroup("Restricted", secret)
