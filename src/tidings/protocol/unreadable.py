"""What a decoder raises for bytes that say nothing: more than its own errors."""

import msgspec

from tidings.model.errors import TidingsError

# Texts that are no UTF-8 and values nested too deeply are not among msgspec's own errors.
UNREADABLE: tuple[type[Exception], ...] = (msgspec.MsgspecError, TidingsError, UnicodeDecodeError, RecursionError)
