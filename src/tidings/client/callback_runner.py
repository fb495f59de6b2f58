"""Runs the callback of a subscription, one notification after the other."""

import asyncio
import contextvars
import inspect
import logging
from collections.abc import Callable
from typing import Any, Protocol

from tidings.model.errors import ClosedError
from tidings.model.notification import Notification

Callback = Callable[[Notification], Any]
_LOG = logging.getLogger("tidings.client")
_RAISED = object()


class CallbackSource(Protocol):
    """What running a callback needs of its subscription."""

    @property
    def id(self) -> str: ...
    @property
    def durable(self) -> str | None: ...
    @property
    def waiting(self) -> int: ...
    def next(self) -> Notification: ...
    async def acknowledge(self, *notes: Notification) -> int: ...


class CallbackRunner:
    """Calls a subscription's callback with each notification, and awaits what it returns if that is awaitable.

    Returning acknowledges the notification; an exception is logged. There is a task only while something is awaited,
    since a client may have very many subscriptions that rarely get a notification.
    """

    __slots__ = ("_callback", "_context", "_is_due", "_subscription", "_waiting")

    def __init__(self, subscription: CallbackSource, callback: Callback) -> None:
        self._subscription, self._callback = subscription, callback
        self._context = contextvars.copy_context()  # the context variables of the caller of `subscribe`
        self._is_due = False
        self._waiting: asyncio.Task[None] | None = None
        self.wake()

    def wake(self) -> None:
        """Schedule the callback if notifications wait."""
        if not self._is_due and self._waiting is None and self._subscription.waiting:
            self._is_due = True
            asyncio.get_running_loop().call_soon(self._run_pending, context=self._context)

    def _run_pending(self) -> None:
        self._is_due = False
        subscription = self._subscription
        while subscription.waiting:
            notification = subscription.next()
            result = self._run_callback(notification)
            if subscription.durable is not None or (result is not None and inspect.isawaitable(result)):
                self._waiting = asyncio.get_running_loop().create_task(self._run_task(notification, result))
                return

    async def _run_task(self, notification: Notification, result: Any) -> None:
        """Process this notification and all later ones in a task, since something has to be awaited."""
        subscription = self._subscription
        try:
            await self._finish(notification, result)
            while subscription.waiting:
                notification = subscription.next()
                await self._finish(notification, self._run_callback(notification))
        except ClosedError:  # the client is closed: unacknowledged notifications are redelivered
            return
        finally:
            self._waiting = None

    def _run_callback(self, notification: Notification) -> Any:
        try:
            return self._callback(notification)
        except Exception:
            self._log_exception()
            return _RAISED

    async def _finish(self, notification: Notification, result: Any) -> None:
        if inspect.isawaitable(result):
            try:
                await result
            except Exception:
                self._log_exception()
                return
        if result is not _RAISED and self._subscription.durable is not None:
            await self._subscription.acknowledge(notification)

    def _log_exception(self) -> None:
        _LOG.exception("the callback of the subscription %s raised", self._subscription.id)
