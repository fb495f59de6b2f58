"""Event ids: UUIDv7, so that ids sort by the time they were made. Time and entropy are handed in."""

from uuid import UUID

ENTROPY_BYTES = 10


def uuid7(microseconds: int, entropy: bytes) -> UUID:
    """The version 7 UUID (RFC 9562) of that moment, counted from the Unix epoch, with 74 of the given random bits."""
    if len(entropy) != ENTROPY_BYTES:
        raise ValueError(f"uuid7 takes {ENTROPY_BYTES} bytes of entropy, not {len(entropy)}")
    milliseconds = microseconds // 1000
    if not 0 <= milliseconds < 1 << 48:
        raise ValueError(f"{microseconds} microseconds is outside of what a UUIDv7 can say")
    random = int.from_bytes(entropy, "big")
    number = milliseconds << 80 | 0x7 << 76 | (random >> 62 & 0xFFF) << 64 | 0b10 << 62 | random & (1 << 62) - 1
    return UUID(int=number)
