"""End-to-end security: certificate authority, key management centres, topic discovery nodes, tokens, sealing and the
checks of brokers.

A secure topic has sealed payloads, which only members with a token and the topic's key can open. Attributes stay in
the clear, because brokers route by them. Names in `__all__` are imported on first use.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tidings.security.ca.authority import Authority
    from tidings.security.ca.certificates import Role
    from tidings.security.ca.identity import Identity
    from tidings.security.gate import Gate
    from tidings.security.kmc import KeyManagementCentre
    from tidings.security.member import Member, Opener, open_sealed
    from tidings.security.sealing.keys import EpochKey, Keyring
    from tidings.security.sealing.sealer import Sealer, seal
    from tidings.security.suites import Suite
    from tidings.security.tdn.discovery_node import DiscoveryNode
    from tidings.security.tokens.credentials import Credentials
    from tidings.security.tokens.token import Right, Token
    from tidings.security.topic_record import TopicRecord

_HOMES = {
    "Authority": "ca.authority",
    "Credentials": "tokens.credentials",
    "DiscoveryNode": "tdn.discovery_node",
    "EpochKey": "sealing.keys",
    "Gate": "gate",
    "Identity": "ca.identity",
    "KeyManagementCentre": "kmc",
    "Keyring": "sealing.keys",
    "Member": "member",
    "Opener": "member",
    "Right": "tokens.token",
    "Role": "ca.certificates",
    "Sealer": "sealing.sealer",
    "Suite": "suites",
    "Token": "tokens.token",
    "TopicRecord": "topic_record",
    "open_sealed": "member",
    "seal": "sealing.sealer",
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
