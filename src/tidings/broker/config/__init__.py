"""The configuration of a broker: its TOML file, with environment variables taking precedence over it."""

from tidings.broker.config.configuration import BrokerConfiguration, ConfigurationChange, EffectiveValue
from tidings.broker.config.table_types import Address

__all__ = ["Address", "BrokerConfiguration", "ConfigurationChange", "EffectiveValue"]
