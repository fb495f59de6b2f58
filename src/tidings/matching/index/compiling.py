"""Kernels are compiled once, at installation or before the first event: never in the middle of traffic.

What is compiled is kept where Numba keeps it: in the folder that NUMBA_CACHE_DIR names, else beside the source, else
below the user's own cache. Where none of them can be written, every process compiles for itself.
"""

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from typing import Any, NamedTuple

import numpy.ma  # noqa: F401 - numpy.unique would import it when it is first called, in the middle of traffic
from numba import boolean, float64, from_dtype, int16, int32, int64, njit, uint8
from numba.core import event

from tidings.matching.index.layout import PREDICATE

# What kernels take. All arrays are in one piece and may be written.
FLAG, INTEGER, FLOAT = boolean, int64, float64
BYTES, INT32S, INT64S, FLOATS, PREDICATES = uint8[::1], int32[::1], int64[::1], float64[::1], from_dtype(PREDICATE)[::1]
BYTE_ROWS, INT16_ROWS, INT32_ROWS, INT64_ROWS, FLOAT_ROWS = (
    one[:, ::1] for one in (uint8, int16, int32, int64, float64)
)

part = njit  # a function that kernels call
inlined = njit(inline="always")  # one whose text becomes a part of theirs

SECONDS = 60  # that compiling takes, about
HINT = "set NUMBA_CACHE_DIR to a folder that can be written"
_LOG = logging.getLogger("tidings")
KERNELS: list["_Kernel"] = []
_making_ready = threading.Lock()
_outcome: "Outcome | None" = None


class Outcome(NamedTuple):
    """How the kernels of this process were made ready."""

    kernels: int
    compiled: int  # the others were there already
    cache: str | None  # the folder where they are; None if they could not be kept


def kernel(*types: Any, alone: bool = False) -> Callable[[Callable[..., Any]], Any]:
    """A function that Python calls, compiled for arguments of these types and no others.

    `alone`: it takes long, and nobody else has its arguments, so that other threads go on meanwhile.
    """

    def made(function: Callable[..., Any]) -> Any:
        try:
            dispatcher = njit(cache=True, nogil=alone)(function)
        except RuntimeError:  # there is no folder where it could be kept
            dispatcher = njit(nogil=alone)(function)
        KERNELS.append(_Kernel(dispatcher, types))
        return dispatcher

    return made


def count() -> int:
    """How many kernels there are."""
    return len(KERNELS)


def ready(begin: Callable[[str], None] | None = None) -> Outcome:
    """Makes sure, once in a process, that all kernels are there; a warning tells if they have to be compiled first.

    After it nothing is compiled any more: arguments of other types are a `TypeError`, not a pause of some seconds.
    With `begin`, which is told the name of each kernel when its turn comes, nothing is logged.
    """
    global _outcome
    if _outcome is None:
        with _making_ready, nullcontext() if begin else _warning_if_compiled():
            if _outcome is None:
                for one in KERNELS:
                    if begin is not None:
                        begin(one.dispatcher.__name__)
                    one.make_ready()
                _outcome = _summary()
        if _outcome.cache is None and begin is None:
            _LOG.warning("the compiled kernels cannot be kept, so every process compiles them anew: %s", HINT)
    return _outcome


class _Kernel:
    def __init__(self, dispatcher: Any, types: tuple[Any, ...]) -> None:
        self.dispatcher = dispatcher
        self.is_kept = True
        self._types = types

    def make_ready(self) -> None:
        cache = self.dispatcher._cache
        for way_out in (cache.flush, cache.disable):
            try:
                self.dispatcher.compile(self._types)
                break
            except Exception:  # what is kept may be damaged in any way, and the disk may be full
                if self.dispatcher.signatures:  # compiled, but not kept
                    self.is_kept = False
                    break
                self.is_kept = way_out != cache.disable
                with suppress(OSError):
                    way_out()
        else:
            self.dispatcher.compile(self._types)
        self.dispatcher.disable_compile()


def _summary() -> Outcome:
    compiled = sum(not one.dispatcher.stats.cache_hits for one in KERNELS)
    folders = [one.dispatcher.stats.cache_path if one.is_kept else None for one in KERNELS]
    return Outcome(len(KERNELS), compiled, None if None in folders else folders[0])


class _Warner(event.Listener):  # type: ignore[misc]
    """Speaks up when the first kernel is about to be compiled."""

    def __init__(self) -> None:
        self._has_spoken = False

    def on_start(self, _: event.Event) -> None:
        if not self._has_spoken:
            self._has_spoken = True
            _LOG.warning(
                "compiling the matching kernels, which takes about %d seconds; "
                "run `tidings warm` at installation to avoid this",
                SECONDS,
            )

    def on_end(self, _: event.Event) -> None:
        pass


@contextmanager
def _warning_if_compiled() -> Iterator[None]:
    with event.install_listener("numba:compile", _Warner()):
        yield
