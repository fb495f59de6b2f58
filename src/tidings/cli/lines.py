"""The lines of a stream that comes in pieces, with their numbers; of one that does not end, only a part is kept."""

from collections.abc import Iterator

from tidings.model.limits import MAX_FRAME_BYTES

LONGEST = 2 * MAX_FRAME_BYTES  # bytes: an event that a broker takes, with its payload in Base64


class Lines:
    """Those that are not empty. What is longer than `LONGEST` comes cut off, and is longer all the same."""

    def __init__(self, longest: int = LONGEST) -> None:
        self._longest = longest
        self._number = 0
        self.rest = bytearray()  # the beginning of a line of which the end has not come

    def feed(self, data: bytes) -> Iterator[tuple[int, bytes]]:
        *ends, last = data.split(b"\n")
        for end in ends:
            self._keep(end)
            yield from self.end()
        self._keep(last)

    def end(self) -> Iterator[tuple[int, bytes]]:
        """The line that has begun is whole."""
        self._number += 1
        line, self.rest = bytes(self.rest), bytearray()
        if line.strip():
            yield self._number, line

    def _keep(self, data: bytes) -> None:
        self.rest += data[: max(0, self._longest + 1 - len(self.rest))]
