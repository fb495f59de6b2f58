"""Who belongs to a trust group: asked of whatever the hub's owner has given."""

import logging
from collections.abc import Callable
from typing import Protocol, runtime_checkable


@runtime_checkable
class TrustProvider(Protocol):
    """`expiry` says for how many seconds an answer holds; 0: it is asked each time."""

    expiry: float

    def is_member(self, party: str, group: str) -> bool: ...


Provider = TrustProvider | Callable[[str, str], bool]
_LOG = logging.getLogger("tidings")


def asked(provider: Provider | None, party: str, group: str, now: int) -> tuple[bool, int]:
    """Whether the party belongs to the group, and until when (microseconds) that need not be asked again.

    Without a provider nobody belongs to any group; one that raises has not said yes.
    """
    if provider is None:
        return False, 0
    try:
        if isinstance(provider, TrustProvider):
            return bool(provider.is_member(party, group)), now + int(provider.expiry * 1_000_000)
        return bool(provider(party, group)), 0
    except Exception:
        _LOG.exception("the trust provider failed when it was asked about %r in %r: counts as no", party, group)
        return False, 0
