"""Challenges and proofs: who is connected belongs to a trust group, or still holds the key of its certificate."""

import msgspec


class Challenge(msgspec.Struct, frozen=True, array_like=True):
    """Prove that you belong to this trust group; without one: that you hold the key of your certificate."""

    number: int
    nonce: bytes
    group: str | None = None


class Proof(msgspec.Struct, frozen=True, array_like=True):
    """The answer to the challenge of that number. An empty proof says that there is none. `nonce` is the prover's, with
    the proof of a group."""

    number: int
    nonce: bytes = b""
    proof: bytes = b""
