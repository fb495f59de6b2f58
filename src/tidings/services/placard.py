"""A placard: where a service can be asked, shown at discovery nodes for as long as the service is there."""

import asyncio
import contextlib
import logging

from tidings.client.client import Client
from tidings.client.discovery import Discovery
from tidings.client.security import now
from tidings.model.errors import ClosedError, RefusedError, TidingsError
from tidings.security.advertised import Advertised
from tidings.security.credentials import Credentials
from tidings.security.exchange import Service
from tidings.security.identity import Identity
from tidings.security.restriction import Restriction

_LOG = logging.getLogger("tidings.services")
_AGAIN = 30.0  # seconds until nodes are looked for again, where none was
_DAILY = 86_400.0  # seconds after which it is shown anew, so that it does not end


class Placard:
    """`restriction` says who may find it."""

    def __init__(
        self, client: Client, identity: Identity, credentials: Credentials, restriction: Restriction | None = None
    ) -> None:
        self._identity, self._restriction = identity, restriction
        self._nodes = Discovery(client, identity, credentials)
        self._service: Service | None = None
        self._changed = asyncio.Event()

    def show(self, service: Service) -> None:
        """From now on this one, and no other."""
        self._service = service
        self._changed.set()

    async def keep(self) -> None:
        """Shows it, and goes on doing so, until it is cancelled. An overlay may have no discovery node, or get one
        later."""
        pause: float | None = None
        while True:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._changed.wait(), pause)
            self._changed.clear()
            if self._service is None:
                continue
            said = Advertised.of_service(self._identity, self._service, now(), restriction=self._restriction)
            try:
                took = await self._nodes.advertise(said)
                _LOG.info("%s can be found at %s", self._identity.name, ", ".join(took))
                pause = _DAILY
            except ClosedError:
                return
            except TidingsError as error:
                log = _LOG.warning if isinstance(error, RefusedError) else _LOG.debug
                log("%s cannot be found at discovery nodes: %s", self._identity.name, error)
                pause = _AGAIN
