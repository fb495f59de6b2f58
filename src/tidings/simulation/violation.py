"""What a checker finds wrong."""

from typing import Literal

import msgspec

_SYMPTOM_WORDS = 3

Kind = Literal[
    "lost",  # due under every state that the network may have been in, and not told
    "undue",  # due under none of them, and told
    "twice",  # told once more
    "order",  # told behind a later event of the same publisher
    "altered",  # told with other attributes than it was published with
    "tables",  # a broker does not know what it would in a fresh network
    "unsettled",  # the world did not come to rest
    "error",  # the world broke
]


class Violation(msgspec.Struct, frozen=True):
    kind: Kind
    what: str

    @property
    def symptom(self) -> str:
        """The kind and the first words: they say who misses what, but not which event it is, and when.

        The same fault shows the same symptom after some steps have been left out. Of an error, the last line counts.
        """
        words = self.what.splitlines()[-1].split() if self.what else []
        return " ".join([self.kind, *words[:_SYMPTOM_WORDS]])

    def __str__(self) -> str:
        return f"{self.kind}: {self.what}"
