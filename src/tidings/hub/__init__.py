"""The embedded hub: the engine in one process, with or without a journal."""

from tidings.hub.client import HubAdvertisement as HubAdvertisement
from tidings.hub.client import HubClient as HubClient
from tidings.hub.hub import Hub as Hub
from tidings.hub.node import Stats as Stats
from tidings.hub.subscription import HubSubscription as HubSubscription
from tidings.model.receipt import Receipt as Receipt
from tidings.runtime.clock import Clock as Clock
from tidings.runtime.clock import SystemClock as SystemClock
from tidings.runtime.trust import TrustProvider as TrustProvider
