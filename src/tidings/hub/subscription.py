"""A subscription of a hub, as its subscriber holds it: notifications are taken, waited for, or passed to a callback."""

import logging
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Protocol, Self
from uuid import UUID

from tidings.model.errors import ClosedError, InvalidValueError, SecurityError
from tidings.model.notification import Notification
from tidings.model.receipt import NO_JOURNAL_IN_HUB
from tidings.model.subscription import Subscription
from tidings.model.time_arguments import checked_timeout
from tidings.runtime.durable_inbox import DurableInbox
from tidings.runtime.inboxes import Inbox
from tidings.runtime.subscription_registry import RegisteredSubscription

if TYPE_CHECKING:
    from tidings.policy.policy import Policy
    from tidings.runtime.due_from_journal import Since

Callback = Callable[[Notification], Any]
_LOG = logging.getLogger("tidings")
# One lock for all subscriptions, to save memory: it is held only for a few assignments.
_LISTENER_LOCK = threading.Lock()


class _Listener:
    """State of a subscription that only a listener in this process needs: its callback, findings and counters.

    It is created on first use: a broker has very many subscriptions whose subscribers listen over the network.
    """

    __slots__ = ("callback", "claimed", "failed", "findings", "refused", "stalled")

    def __init__(self) -> None:
        self.callback: Callback | None = None
        self.findings: list[str] = []
        self.failed = 0
        self.refused = 0
        self.claimed = False
        self.stalled = False  # the callback waits, since the subscription's token is no longer valid


class SubscriptionPort(Protocol):
    """What a subscription needs of its hub."""

    def acknowledge(self, subscription: RegisteredSubscription, events: Iterable[UUID]) -> int:
        """Acknowledge events of a durable subscription; return how many notifications are newly acknowledged."""
        ...

    def wake(self, subscription: "HubSubscription") -> None:
        """Run the callback of the subscription if notifications wait for it."""

    def unsubscribe(self, client: str, id: str, policy: Any = None) -> None:  # noqa: A002
        """Remove a subscription of the client; `policy` holds the rules to run before the removal."""

    def replay(self, ids: list[str], since: "Since") -> Iterator[Notification]:
        """Replay the journaled events from `since` on: yield the notifications that the subscriptions would get now."""
        ...

    def check_token(self, subscription: Subscription) -> None:
        """Raise `SecurityError` if the subscription's token is no longer valid."""

    def may_receive(self, notification: Notification) -> bool:
        """Return whether a waiting notification may still be handed to its subscriber, given later revocations."""
        ...

    def decrypt(self, notification: Notification, policy: str | None) -> Notification | None:
        """Return the notification decrypted for its subscriber, or None if it cannot be decrypted."""
        ...

    def log_line(self, line: str) -> None:
        """Log a line."""


class HubSubscription(RegisteredSubscription):
    """The handle of a subscription, returned by `HubClient.subscribe`. Every method may be called from any thread.

    `lost` counts notifications that did not fit into the inbox, `refused` those that the subscriber, a member, could
    not decrypt. `findings` are remarks on the policy, and a warning if a durable subscription is in a hub without a
    journal.
    """

    __slots__ = ("_hub", "_listener")

    def __init__(self, hub: SubscriptionPort, subscription: Subscription, inbox: Inbox) -> None:
        super().__init__(subscription, inbox)
        self._hub = hub
        self._listener: _Listener | None = None

    @property
    def callback(self) -> Callback | None:
        """The function that is called with each notification, or None."""
        return None if self._listener is None else self._listener.callback

    @property
    def findings(self) -> list[str]:
        """Remarks on the subscription's policy, and a warning if the hub has no journal for a durable subscription."""
        of_policy = [] if self._listener is None else self._listener.findings
        inbox = self.inbox
        is_kept = not isinstance(inbox, DurableInbox) or inbox.has_journal
        return [*of_policy] if is_kept else [*of_policy, NO_JOURNAL_IN_HUB]

    @property
    def failed(self) -> int:
        """The number of callbacks that raised."""
        return 0 if self._listener is None else self._listener.failed

    @property
    def refused(self) -> int:
        """The number of notifications that the subscriber, a member, could not decrypt."""
        return 0 if self._listener is None else self._listener.refused

    def _ensure_listener(self) -> "_Listener":
        with _LISTENER_LOCK:
            if self._listener is None:
                self._listener = _Listener()
            return self._listener

    @property
    def lost(self) -> int:
        """The number of notifications that did not fit into the inbox."""
        return self.inbox.lost

    @property
    def closed(self) -> bool:
        """Whether the subscription has ended, or its listener has left."""
        return self.inbox.is_idle

    def take(self, limit: int | None = None, timeout: float | None = 0) -> list[Notification]:
        """Take waiting notifications, at most `limit`; if none wait, wait up to `timeout` seconds (None: without end).

        Raises:
            ClosedError: Nothing waits and the subscription is closed.
            SecurityError: The subscription's token is no longer valid. Nothing is lost: subscribing again with a fresh
                token continues.
        """
        if limit is not None and (type(limit) is not int or limit < 0):
            raise InvalidValueError("limit: how many at most, or None")
        notifications = self._take(limit, checked_timeout(timeout))
        # Check `is_idle` before `ready`: notifications that came before the subscription closed are handed out first.
        if not notifications and self.inbox.is_idle and not self.inbox.ready():
            raise ClosedError(f"the subscription {self.id} is closed")
        return notifications

    def __iter__(self) -> Iterator[Notification]:
        """Take and yield the waiting notifications, until none waits."""
        while self.inbox.ready():
            yield from self._take(1, 0)

    def listen(self, timeout: float | None = None) -> Iterator[Notification]:
        """Yield notifications until the subscription is closed, or none has come for `timeout` seconds."""
        patience = checked_timeout(timeout)
        while True:
            taken = self._take(1, patience)
            if taken:
                yield taken[0]
            elif timeout is not None or self.inbox.is_idle:
                return

    def acknowledge(self, *notes: Notification | UUID) -> int:
        """Acknowledge notifications, or event ids, of a durable subscription: they will not be redelivered.

        Returns how many were newly acknowledged.
        """
        events = [note.event.id if isinstance(note, Notification) else note for note in notes]
        for event in events:
            if not isinstance(event, UUID):
                raise InvalidValueError(f"acknowledge takes notifications or ids of events, not {type(event).__name__}")
        return self._acknowledge(events)

    def acknowledge_all(self) -> int:
        """Acknowledge every notification that was taken; return how many."""
        inbox = self.inbox
        return self._acknowledge(inbox.taken_events() if isinstance(inbox, DurableInbox) else ())

    def redeliver(self) -> int:
        """Put taken but unacknowledged notifications back into the inbox, in their order; return how many."""
        count = self.inbox.redeliver()
        self._hub.wake(self)
        return count

    def replay(self, since: "Since" = None) -> Iterator[Notification]:
        """Replay the journaled events from `since` on: yield the notifications that the subscription would get now.

        Neither the inbox nor the journal changes.
        """
        return self._hub.replay([self.id], since)

    def unsubscribe(self, policy: "str | Policy | None" = None) -> None:
        """End the subscription for good, even a durable one. Waiting notifications can still be taken."""
        self._hub.unsubscribe(self.subscriber, self.id, policy)

    def close(self) -> None:
        """End the subscription, or detach from a durable one, which goes on collecting until it is resumed."""
        if self.durable is None:
            if not self.inbox.closed:
                self.unsubscribe()
        else:
            self.detach()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<{self.id} of {self.subscriber}: {self.subscription.content}, {self.waiting} waiting>"

    def _take(self, limit: int | None, timeout: float | None) -> list[Notification]:
        """Take from the inbox, dropping events that may no longer be handed out and decrypting those that are sealed.

        Dropped events are acknowledged.
        """
        self._hub.check_token(self.subscription)
        notifications = self.inbox.take(limit, timeout)
        allowed = [notification for notification in notifications if self._hub.may_receive(notification)]
        if len(allowed) < len(notifications) and self.durable is not None:
            allowed_ids = {notification.event.id for notification in allowed}
            self._acknowledge(
                notification.event.id for notification in notifications if notification.event.id not in allowed_ids
            )
        decrypted = [self._hub.decrypt(notification, self.subscription.policy) for notification in allowed]
        if None in decrypted:
            self._ensure_listener().refused += decrypted.count(None)
        return [notification for notification in decrypted if notification is not None]

    def _acknowledge(self, events: Iterable[UUID]) -> int:
        count = self._hub.acknowledge(self, events)
        if count:
            self._hub.wake(self)  # the inbox may have room for more
        return count

    # Called by the hub

    def set_policy_findings(self, findings: list[str]) -> None:
        """Set the remarks on the policy that was just set."""
        if findings or self._listener is not None:
            self._ensure_listener().findings = findings

    def resume(self) -> bool:
        """Clear the stall, since the token may be valid again; return whether the callback was stalled."""
        listener = self._listener
        if listener is None:
            return False
        stalled, listener.stalled = listener.stalled, False
        return stalled

    def attach(self, callback: Callback | None) -> None:
        """Attach a listener, with a callback or without; unacknowledged notifications are redelivered to it."""
        self.resume()
        self.inbox.attach_listener()
        if callback is not None or self._listener is not None:
            self._ensure_listener().callback = callback
        self.inbox.redeliver()

    def detach(self) -> None:
        """Detach the listener; the inbox of a durable subscription goes on collecting."""
        if self._listener is not None:
            self._listener.callback = None
        super().detach()

    def claim(self) -> bool:
        """Claim the callback for the calling thread; False if there is nothing to do or another thread runs it."""
        listener = self._listener
        if listener is None:
            return False
        with _LISTENER_LOCK:
            if listener.claimed or listener.stalled or listener.callback is None or not self.inbox.ready():
                return False
            listener.claimed = True
            return True

    def release(self) -> None:
        """Release the claim, so that another thread may run the callback."""
        listener = self._ensure_listener()
        with _LISTENER_LOCK:
            listener.claimed = False

    def run(self, limit: int) -> int:
        """Call the callback with up to `limit` notifications; returning acknowledges, raising is counted and logged.

        Returns how many times the callback has raised.
        """
        done: list[UUID] = []
        failed = 0
        try:
            for notification in self._take_for_callback(limit):
                callback = self.callback
                if callback is None or self.inbox.closed:
                    break
                try:
                    callback(notification)
                except Exception:
                    failed += 1
                    self._ensure_listener().failed += 1
                    _LOG.exception("the callback of the subscription %s raised", self.id)
                else:
                    done.append(notification.event.id)
        finally:
            if done and self.durable is not None:
                self._acknowledge_quietly(done)
        return failed

    def _take_for_callback(self, limit: int) -> list[Notification]:
        try:
            return self._take(limit, 0)
        except SecurityError as error:
            self._ensure_listener().stalled = True
            self._hub.log_line(f"the callback of the subscription {self.id} has to wait: {error.reason}")
            return []
        except Exception:
            self._ensure_listener().callback = None  # otherwise the callback would be retried for ever
            _LOG.exception("the subscription %s cannot read on in the journal; its callback is called no more", self.id)
            return []

    def _acknowledge_quietly(self, done: list[UUID]) -> None:
        try:
            self._acknowledge(done)
        except Exception:  # the notifications are redelivered after a restart
            _LOG.exception("what the callback of the subscription %s has done cannot be acknowledged", self.id)
