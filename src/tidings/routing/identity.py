"""What a context is called in routing tables and Bloom filters: 16 bytes made from its names and values.

Two contexts have the same id exactly when they are equal, and equal contexts are those that no filter can tell apart:
1, 1.0 and TRUE are three values, 0.0 and -0.0 are one. The id depends neither on the process nor on the order in which
values were given.
"""

from functools import lru_cache
from hashlib import blake2b

import msgspec

from tidings.model.limits import MAX_CACHED_CONTEXTS
from tidings.model.values import Context

CONTEXT_ID_BYTES = 16


@lru_cache(MAX_CACHED_CONTEXTS)
def context_id(context: Context) -> bytes:
    """The id of a context; MessagePack keeps the four kinds of values apart and says where each one ends."""
    # Adding nothing takes the sign off a negative zero and leaves every other float as it is.
    values = [(name, value + 0.0 if type(value) is float else value) for name, value in sorted(context.items())]
    return blake2b(msgspec.msgpack.encode(values), digest_size=CONTEXT_ID_BYTES).digest()
