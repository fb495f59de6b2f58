"""Event ids: UUIDv7, which sort by their time of creation. The caller passes in time and entropy."""

from collections.abc import Callable
from uuid import UUID, SafeUUID

from tidings.model.errors import InvalidValueError

ENTROPY_BYTES = 10


def uuid7(microseconds: int, entropy: bytes) -> UUID:
    """Return the version 7 UUID (RFC 9562) for a time and 10 random bytes, of which 74 bits are used.

    `microseconds` counts from the Unix epoch. Raises an `InvalidValueError` if the time or the entropy is unsuitable.
    """
    if not isinstance(entropy, bytes) or len(entropy) != ENTROPY_BYTES:
        raise InvalidValueError(f"uuid7 takes {ENTROPY_BYTES} bytes of entropy")
    if type(microseconds) is not int:
        raise InvalidValueError(f"uuid7 takes whole microseconds, not {type(microseconds).__name__}")
    milliseconds = microseconds // 1000
    if not 0 <= milliseconds < 1 << 48:
        raise InvalidValueError(f"{microseconds} microseconds is outside of what a UUIDv7 can say")
    random = int.from_bytes(entropy, "big")
    number = milliseconds << 80 | 0x7 << 76 | (random >> 62 & 0xFFF) << 64 | 0b10 << 62 | random & (1 << 62) - 1
    return _uuid(number)


def uuid_of(data: bytes) -> UUID:
    """Return the UUID with these 16 bytes, of any version; raise an `InvalidValueError` for another length."""
    if len(data) != 16:
        raise InvalidValueError("a UUID has 16 bytes")
    return _uuid(int.from_bytes(data, "big"))


def is_uuid7(id: UUID) -> bool:  # noqa: A002 - the field's own name
    """Return whether `id` is a version 7 UUID of the RFC variant; faster than `id.version == 7`."""
    return id.int >> 76 & 0xF == 7 and id.int >> 62 & 0b11 == 0b10


def _uuid(number: int) -> UUID:
    """Return `UUID(int=number)` without its argument checks, which cost too much for every event."""
    made = _NEW(UUID)
    _SET_NUMBER(made, number)
    _SET_SAFETY(made, _UNKNOWN)
    return made


_NEW, _UNKNOWN = object.__new__, SafeUUID.unknown
_SET_NUMBER: Callable[[UUID, int], None] = vars(UUID)["int"].__set__  # UUID.__setattr__ always raises
_SET_SAFETY: Callable[[UUID, SafeUUID], None] = vars(UUID)["is_safe"].__set__
