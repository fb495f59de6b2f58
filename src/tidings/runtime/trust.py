"""Trust groups: asks the provider that the hub's owner configured whether a party belongs to a group."""

import logging
from collections.abc import Callable
from typing import Protocol, runtime_checkable


@runtime_checkable
class TrustProvider(Protocol):
    """Decides membership of trust groups. Answers are cached for `expiry` seconds; 0 means that each use asks again."""

    expiry: float

    def is_member(self, party: str, group: str) -> bool:
        """Return whether `party` belongs to `group`."""
        ...


Provider = TrustProvider | Callable[[str, str], bool]
_LOG = logging.getLogger("tidings")


def ask_provider(provider: Provider | None, party: str, group: str, now: int) -> tuple[bool, int]:
    """Ask the provider whether `party` belongs to `group`; return the answer and until when it is valid.

    Without a provider no party belongs to any group; a provider that raises counts as a no.

    Args:
        provider: The provider, or None.
        party: The name of the client or broker.
        group: The name of the trust group.
        now: The time, in microseconds, as is the validity returned.
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
