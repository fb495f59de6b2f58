"""Context ids, and Bloom filters of them in publications (paper 004, section 3.1.1).

A context id is a 16-byte hash of the names and values. Two contexts have the same id exactly if no filter can
distinguish them: 1, 1.0 and TRUE are three values, 0.0 and -0.0 are one. A Bloom filter has false positives, but no
false negatives; the two halves of an id yield all bit positions by double hashing.
"""

import math
from collections.abc import Iterable
from functools import lru_cache
from hashlib import blake2b
from typing import Annotated, Self

import msgspec
import numpy as np
import numpy.typing as npt

from tidings.model.limits import MAX_BLOOM_BYTES, MAX_BLOOM_HASHES, MAX_CACHED_CONTEXTS
from tidings.model.values import Context

CONTEXT_ID_BYTES = 16


@lru_cache(MAX_CACHED_CONTEXTS)
def context_id(context: Context) -> bytes:
    """Return the id of a context: the BLAKE2b hash of its sorted values in MessagePack, which keeps types distinct."""
    # Adding 0.0 turns -0.0 into 0.0 and leaves every other float unchanged.
    values = [(name, value + 0.0 if type(value) is float else value) for name, value in sorted(context.items())]
    return blake2b(msgspec.msgpack.encode(values), digest_size=CONTEXT_ID_BYTES).digest()


FALSE_POSITIVES = 0.01
_BITS_PER_ID = -math.log(FALSE_POSITIVES) / math.log(2) ** 2
_LEAST_BYTES = 8  # with fewer bytes, bit positions of different ids would often coincide
_HALF = CONTEXT_ID_BYTES // 2


class Bloom(msgspec.Struct, frozen=True):
    """A Bloom filter of context ids: `id in bloom` is true for every member and for about 1 % of all other ids.

    The filter does not grow beyond MAX_BLOOM_BYTES; with more members, the share of false positives rises.
    """

    bits: Annotated[bytes, msgspec.Meta(min_length=1, max_length=MAX_BLOOM_BYTES)]
    hashes: Annotated[int, msgspec.Meta(ge=1, le=MAX_BLOOM_HASHES)]

    @classmethod
    def of(cls, ids: Iterable[bytes]) -> Self:
        """Return a Bloom filter of these context ids."""
        return cls.of_halves(halves_of(set(ids)))

    @classmethod
    def of_halves(cls, halves: npt.NDArray[np.uint64]) -> Self:
        """Return a Bloom filter of distinct ids, given as the array of `halves_of`."""
        needed_bytes = math.ceil(len(halves) * _BITS_PER_ID / 8)
        size = min(max(needed_bytes, _LEAST_BYTES), MAX_BLOOM_BYTES)
        best = round(size * 8 / max(len(halves), 1) * math.log(2))
        hashes = min(max(best, 1), MAX_BLOOM_HASHES)
        bits = np.zeros(size * 8, np.uint8)
        place, step = halves[:, 0] % bits.size, (halves[:, 1] | 1) % bits.size  # odd, so never 0
        for _ in range(hashes):
            bits[place] = 1
            place = (place + step) % bits.size
        return cls(np.packbits(bits, bitorder="little").tobytes(), hashes)

    def __contains__(self, context_id: bytes) -> bool:
        bits, size = self.bits, len(self.bits) * 8
        place = int.from_bytes(context_id[:_HALF], "big") % size
        step = (int.from_bytes(context_id[_HALF:], "big") | 1) % size
        for _ in range(self.hashes):
            if not bits[place >> 3] >> (place & 7) & 1:
                return False
            place = (place + step) % size
        return True


def halves_of(ids: Iterable[bytes]) -> npt.NDArray[np.uint64]:
    """Return the two 64-bit halves of each id as an array with one row for each id."""
    return np.frombuffer(b"".join(ids), ">u8").astype(np.uint64).reshape(-1, 2)
