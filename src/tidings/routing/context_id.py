"""The id of a context in routing tables and Bloom filters: a 16-byte hash of its names and values.

Two contexts have the same id exactly if no filter can distinguish them: 1, 1.0 and TRUE are three values, 0.0 and -0.0
are one. The id depends neither on the process nor on the order of the values.
"""

from functools import lru_cache
from hashlib import blake2b

import msgspec

from tidings.model.limits import MAX_CACHED_CONTEXTS
from tidings.model.values import Context

CONTEXT_ID_BYTES = 16


@lru_cache(MAX_CACHED_CONTEXTS)
def context_id(context: Context) -> bytes:
    """Return the id of a context: the BLAKE2b hash of its sorted values in MessagePack, which keeps types distinct."""
    # Adding 0.0 turns -0.0 into 0.0 and leaves every other float unchanged.
    values = [(name, value + 0.0 if type(value) is float else value) for name, value in sorted(context.items())]
    return blake2b(msgspec.msgpack.encode(values), digest_size=CONTEXT_ID_BYTES).digest()
