"""Calling: what comes for a subscription is handed to a function, one notification after the other."""

import asyncio
import contextvars
import inspect
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tidings.model.errors import ClosedError
from tidings.model.notification import Notification

if TYPE_CHECKING:
    from tidings.client.subscription import Subscription

Callback = Callable[[Notification], Any]
_LOG = logging.getLogger("tidings.client")
_RAISED = object()


class Calling:
    """Returning acknowledges, raising is logged. What the function returns is waited for, if it can be.

    There is no task unless something has to be waited for: a client may have very many subscriptions, to most of which
    nothing comes for long.
    """

    __slots__ = ("_callback", "_context", "_is_due", "_subscription", "_waiting")

    def __init__(self, subscription: "Subscription", callback: Callback) -> None:
        self._subscription, self._callback = subscription, callback
        self._context = contextvars.copy_context()  # of whoever has subscribed
        self._is_due = False
        self._waiting: asyncio.Task[None] | None = None
        self.wake()

    def wake(self) -> None:
        """Something may have come."""
        if not self._is_due and self._waiting is None and self._subscription.waiting:
            self._is_due = True
            asyncio.get_running_loop().call_soon(self._call, context=self._context)

    def _call(self) -> None:
        self._is_due = False
        subscription = self._subscription
        while subscription.waiting:
            note = subscription.next()
            made = self._made(note)
            if subscription.durable is not None or (made is not None and inspect.isawaitable(made)):
                self._waiting = asyncio.get_running_loop().create_task(self._go_on(note, made))
                return

    async def _go_on(self, note: Notification, made: Any) -> None:
        """From a notification on that something is to be waited for, until none is left."""
        subscription = self._subscription
        try:
            await self._finish(note, made)
            while subscription.waiting:
                note = subscription.next()
                await self._finish(note, self._made(note))
        except ClosedError:  # what is acknowledged now comes again
            return
        finally:
            self._waiting = None

    def _made(self, note: Notification) -> Any:
        try:
            return self._callback(note)
        except Exception:
            self._complain()
            return _RAISED

    async def _finish(self, note: Notification, made: Any) -> None:
        if inspect.isawaitable(made):
            try:
                await made
            except Exception:
                self._complain()
                return
        if made is not _RAISED and self._subscription.durable is not None:
            await self._subscription.acknowledge(note)

    def _complain(self) -> None:
        _LOG.exception("the callback of the subscription %s raised", self._subscription.id)
