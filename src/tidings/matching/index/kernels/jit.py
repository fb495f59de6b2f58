"""Compile the kernels once, at installation or before the first event, and never while events are matched.

Numba caches the compiled code: in the folder that NUMBA_CACHE_DIR names, else beside the source, else below the user's
cache folder. If none of these is writable, every process compiles for itself.
"""

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from typing import Any, NamedTuple

import numpy.ma  # noqa: F401 - numpy.unique would import it when it is first called, in the middle of traffic
from numba import boolean, float64, from_dtype, int16, int32, int64, njit, uint8
from numba.core import event

from tidings.matching.index.kernels.layout import PREDICATE

# The types of kernels' arguments. All arrays are contiguous and writable.
FLAG, INTEGER, FLOAT = boolean, int64, float64
BYTES, INT32S, INT64S, FLOATS, PREDICATES = uint8[::1], int32[::1], int64[::1], float64[::1], from_dtype(PREDICATE)[::1]
BYTE_ROWS, INT16_ROWS, INT32_ROWS, INT64_ROWS, FLOAT_ROWS = (
    number_type[:, ::1] for number_type in (uint8, int16, int32, int64, float64)
)

part = njit  # for a function that kernels call
inlined = njit(inline="always")  # for a function that is inlined into kernels

SECONDS = 60  # the approximate time that compiling takes
HINT = "set NUMBA_CACHE_DIR to a folder that can be written"
_LOG = logging.getLogger("tidings")
KERNELS: list["_Kernel"] = []
_ready_lock = threading.Lock()
_outcome: "JitOutcome | None" = None


class JitOutcome(NamedTuple):
    """How the kernels of this process were loaded or compiled."""

    kernels: int
    compiled: int  # the others came from the cache
    cache: str | None  # the cache folder; None if the compiled code could not be cached


def kernel(*types: Any, alone: bool = False) -> Callable[[Callable[..., Any]], Any]:
    """Return a decorator for a function that Python calls, compiled for arguments of exactly these types.

    With `alone`, the kernel releases the interpreter's lock: it runs for long, and no other thread uses its arguments.
    """

    def decorate(function: Callable[..., Any]) -> Any:
        try:
            dispatcher = njit(cache=True, nogil=alone)(function)
        except RuntimeError:  # no cache folder is writable
            dispatcher = njit(nogil=alone)(function)
        KERNELS.append(_Kernel(dispatcher, types))
        return dispatcher

    return decorate


def count() -> int:
    """Return the number of kernels."""
    return len(KERNELS)


def ready(begin: Callable[[str], None] | None = None) -> JitOutcome:
    """Load or compile all kernels, once in a process; log a warning if they have to be compiled.

    Afterwards nothing is compiled any more: a call with arguments of other types raises `TypeError` instead of pausing
    for seconds. `begin`, if given, is called with the name of each kernel before it is loaded, and nothing is logged.
    """
    global _outcome
    if _outcome is None:
        with _ready_lock, nullcontext() if begin else _warning_if_compiled():
            if _outcome is None:
                for entry in KERNELS:
                    if begin is not None:
                        begin(entry.dispatcher.__name__)
                    entry.make_ready()
                _outcome = _summary()
        if _outcome.cache is None and begin is None:
            _LOG.warning("the compiled kernels cannot be kept, so every process compiles them anew: %s", HINT)
    return _outcome


class _Kernel:
    """A kernel's dispatcher and the types that it is compiled for."""

    def __init__(self, dispatcher: Any, types: tuple[Any, ...]) -> None:
        self.dispatcher = dispatcher
        self.is_cached = True
        self._types = types

    def make_ready(self) -> None:
        """Load or compile the kernel and disable further compilation; a damaged cache is flushed, then given up."""
        cache = self.dispatcher._cache
        for way_out in (cache.flush, cache.disable):
            try:
                self.dispatcher.compile(self._types)
                break
            except Exception:  # the cache may be damaged in any way, and the disk may be full
                if self.dispatcher.signatures:  # compiled, but not cached
                    self.is_cached = False
                    break
                self.is_cached = way_out != cache.disable
                with suppress(OSError):
                    way_out()
        else:
            self.dispatcher.compile(self._types)
        self.dispatcher.disable_compile()


def _summary() -> JitOutcome:
    compiled = sum(not entry.dispatcher.stats.cache_hits for entry in KERNELS)
    folders = [entry.dispatcher.stats.cache_path if entry.is_cached else None for entry in KERNELS]
    return JitOutcome(len(KERNELS), compiled, None if None in folders else folders[0])


class _CompilationWarner(event.Listener):  # type: ignore[misc]
    """Logs a warning when the first kernel is about to be compiled."""

    def __init__(self) -> None:
        self._has_warned = False

    def on_start(self, _: event.Event) -> None:
        if not self._has_warned:
            self._has_warned = True
            _LOG.warning(
                "compiling the matching kernels, which takes about %d seconds; "
                "run `tidings warm` at installation to avoid this",
                SECONDS,
            )

    def on_end(self, _: event.Event) -> None:
        pass


@contextmanager
def _warning_if_compiled() -> Iterator[None]:
    with event.install_listener("numba:compile", _CompilationWarner()):
        yield
