"""What a checker finds wrong."""

from typing import Literal

import msgspec

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

    def __str__(self) -> str:
        return f"{self.kind}: {self.what}"
