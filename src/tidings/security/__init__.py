"""Security: an authority, key management centres, topic discovery nodes, tokens, sealed payloads, brokers' checks.

The scheme is that of secure topics: payloads are sealed end to end, attributes are in the clear, since they route.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tidings.security.authority import Authority
    from tidings.security.centre import KeyManagementCentre
    from tidings.security.certificates import Role
    from tidings.security.credentials import Credentials
    from tidings.security.discovery import DiscoveryNode
    from tidings.security.gate import Gate
    from tidings.security.identity import Identity
    from tidings.security.keys import EpochKey, Keyring
    from tidings.security.member import Member
    from tidings.security.opening import Opener, open_sealed
    from tidings.security.records import TopicRecord
    from tidings.security.sealing import Sealer, seal
    from tidings.security.suites import Suite
    from tidings.security.token import Right, Token

_HOMES = {
    "Authority": "authority",
    "Credentials": "credentials",
    "DiscoveryNode": "discovery",
    "EpochKey": "keys",
    "Gate": "gate",
    "Identity": "identity",
    "KeyManagementCentre": "centre",
    "Keyring": "keys",
    "Member": "member",
    "Opener": "opening",
    "Right": "token",
    "Role": "certificates",
    "Sealer": "sealing",
    "Suite": "suites",
    "Token": "token",
    "TopicRecord": "records",
    "open_sealed": "opening",
    "seal": "sealing",
}

__all__ = [
    "Authority",
    "Credentials",
    "DiscoveryNode",
    "EpochKey",
    "Gate",
    "Identity",
    "KeyManagementCentre",
    "Keyring",
    "Member",
    "Opener",
    "Right",
    "Role",
    "Sealer",
    "Suite",
    "Token",
    "TopicRecord",
    "open_sealed",
    "seal",
]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'tidings.security' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f"tidings.security.{home}"), name)
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
