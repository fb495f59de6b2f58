"""What a broker's file may say, and what is in force once environment variables have been put over it."""

from tidings.live.configuration.address import Address
from tidings.live.configuration.configuration import Change, Configuration, InForce

__all__ = ["Address", "Change", "Configuration", "InForce"]
