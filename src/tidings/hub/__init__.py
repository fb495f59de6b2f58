"""The embedded hub: the engine in one process, with or without a journal."""

from tidings.hub.client import Client as Client
from tidings.hub.client import HubAdvertisement as HubAdvertisement
from tidings.hub.clock import Clock as Clock
from tidings.hub.clock import SystemClock as SystemClock
from tidings.hub.hub import Hub as Hub
from tidings.hub.stats import Stats as Stats
from tidings.hub.subscription import HubSubscription as HubSubscription
from tidings.hub.trust import TrustProvider as TrustProvider
from tidings.model.receipt import Receipt as Receipt
