"""A set of context ids in few bytes, for publications to carry (004, section 3.1.1): may say yes too often, never no.

An id is a hash already: its two halves give all places by double hashing, so no byte is hashed again.
"""

import math
from collections.abc import Iterable
from typing import Annotated, Self

import msgspec
import numpy as np
import numpy.typing as npt

from tidings.model.limits import MAX_BLOOM_BYTES, MAX_BLOOM_HASHES
from tidings.routing.identity import CONTEXT_ID_BYTES

FALSE_POSITIVES = 0.01
_BITS_PER_ID = -math.log(FALSE_POSITIVES) / math.log(2) ** 2
_LEAST_BYTES = 8  # in fewer the places of one id would often be the same as another's
_HALF = CONTEXT_ID_BYTES // 2


class Bloom(msgspec.Struct, frozen=True):
    """`id in bloom` is true for all ids that it was made of, and for about 1 % of all others.

    Past MAX_BLOOM_BYTES it does not grow with the ids: then it holds more of the others.
    """

    bits: Annotated[bytes, msgspec.Meta(min_length=1, max_length=MAX_BLOOM_BYTES)]
    hashes: Annotated[int, msgspec.Meta(ge=1, le=MAX_BLOOM_HASHES)]

    @classmethod
    def of(cls, ids: Iterable[bytes]) -> Self:
        return cls.of_halves(halves_of(set(ids)))

    @classmethod
    def of_halves(cls, halves: npt.NDArray[np.uint64]) -> Self:
        """The same of distinct ids that are in an array already."""
        wanted = math.ceil(len(halves) * _BITS_PER_ID / 8)
        size = min(max(wanted, _LEAST_BYTES), MAX_BLOOM_BYTES)
        best = round(size * 8 / max(len(halves), 1) * math.log(2))
        hashes = min(max(best, 1), MAX_BLOOM_HASHES)
        bits = np.zeros(size * 8, np.uint8)
        place, step = halves[:, 0] % bits.size, (halves[:, 1] | 1) % bits.size  # odd, so that it moves
        for _ in range(hashes):
            bits[place] = 1
            place = (place + step) % bits.size
        return cls(np.packbits(bits, bitorder="little").tobytes(), hashes)

    def __contains__(self, one: bytes) -> bool:
        bits, size = self.bits, len(self.bits) * 8
        place = int.from_bytes(one[:_HALF], "big") % size
        step = (int.from_bytes(one[_HALF:], "big") | 1) % size
        for _ in range(self.hashes):
            if not bits[place >> 3] >> (place & 7) & 1:
                return False
            place = (place + step) % size
        return True


def halves_of(ids: Iterable[bytes]) -> npt.NDArray[np.uint64]:
    """The two halves of each id, as numbers."""
    return np.frombuffer(b"".join(ids), ">u8").astype(np.uint64).reshape(-1, 2)
