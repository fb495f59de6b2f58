"""A subscription of a hub, as its subscriber holds it: notifications are taken, waited for, or handed to a callback."""

import logging
import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Self
from uuid import UUID

from tidings.hub.inbox import Inbox
from tidings.model.durability import NO_JOURNAL_IN_HUB
from tidings.model.errors import ClosedError, InvalidValueError, SecurityError
from tidings.model.notification import Notification
from tidings.model.subscription import Subscription
from tidings.model.timeout import checked_timeout

if TYPE_CHECKING:
    from tidings.hub.desk import Desk
    from tidings.hub.history import Since
    from tidings.policy.policy import Policy

Callback = Callable[[Notification], Any]
_LOG = logging.getLogger("tidings")
_TURN = threading.Lock()  # one for all of them, of which there are very many: nobody holds it for long


class _Listening:
    """What is known of a subscription by who listens to it in this process. Those that others listen to, over a
    network, are very many, and have nothing of it."""

    __slots__ = ("callback", "claimed", "failed", "findings", "refused", "stalled")

    def __init__(self) -> None:
        self.callback: Callback | None = None
        self.findings: list[str] = []
        self.failed = 0
        self.refused = 0
        self.claimed = False
        self.stalled = False  # its token is not good any more, so its callback has to wait


class HubSubscription:
    """Made by `Client.subscribe`. Every method may be called from any thread.

    `subscription` is what was subscribed to; `lost` counts what did not fit into the inbox, `refused` what its
    subscriber, a member, could not open; `findings` are remarks on the policy that was given with it, and of a durable
    one that the hub has no journal.
    """

    __slots__ = ("_desk", "_listening", "inbox", "subscription")

    def __init__(self, desk: "Desk", subscription: Subscription, inbox: Inbox) -> None:
        self.subscription = subscription
        self.inbox = inbox
        self._desk = desk
        self._listening: _Listening | None = None

    @property
    def callback(self) -> Callback | None:
        return None if self._listening is None else self._listening.callback

    @property
    def findings(self) -> list[str]:
        of_policy = [] if self._listening is None else self._listening.findings
        is_kept = self.durable is None or self._desk.archive is not None
        return [*of_policy] if is_kept else [*of_policy, NO_JOURNAL_IN_HUB]

    @property
    def failed(self) -> int:
        """Callbacks that raised."""
        return 0 if self._listening is None else self._listening.failed

    @property
    def refused(self) -> int:
        return 0 if self._listening is None else self._listening.refused

    def _listened(self) -> "_Listening":
        with _TURN:
            if self._listening is None:
                self._listening = _Listening()
            return self._listening

    @property
    def durable(self) -> str | None:
        return self.subscription.durable

    @property
    def id(self) -> str:
        return self.subscription.id

    @property
    def subscriber(self) -> str:
        return self.subscription.subscriber

    @property
    def waiting(self) -> int:
        """How many notifications wait; of a durable subscription, also those that only the journal has."""
        return self.inbox.waiting

    @property
    def lost(self) -> int:
        return self.inbox.lost

    @property
    def closed(self) -> bool:
        return self.inbox.quiet

    def take(self, limit: int | None = None, timeout: float | None = 0) -> list[Notification]:
        """What waits, at most `limit`. If nothing does, what comes within `timeout` seconds; None waits until something
        comes or the subscription is closed. When nothing waits and it is closed, a `ClosedError` says so.

        A subscription with a token that is not good any more raises a `SecurityError`, and loses nothing by it:
        subscribing again with a fresh one goes on.
        """
        if limit is not None and (type(limit) is not int or limit < 0):
            raise InvalidValueError("limit: how many at most, or None")
        notes = self._take(limit, checked_timeout(timeout))
        # Whether it is closed comes before whether something waits: what came until then is given out first.
        if not notes and self.inbox.quiet and not self.inbox.ready():
            raise ClosedError(f"the subscription {self.id} is closed")
        return notes

    def __iter__(self) -> Iterator[Notification]:
        """What waits, until nothing does."""
        while self.inbox.ready():
            yield from self._take(1, 0)

    def listen(self, timeout: float | None = None) -> Iterator[Notification]:
        """What waits and what comes, until the subscription is closed or nothing has come for `timeout` seconds."""
        patience = checked_timeout(timeout)
        while True:
            taken = self._take(1, patience)
            if taken:
                yield taken[0]
            elif timeout is not None or self.inbox.quiet:
                return

    def acknowledge(self, *notes: Notification | UUID) -> int:
        """Of a durable subscription: these need not be given again; how many."""
        events = [note.event.id if isinstance(note, Notification) else note for note in notes]
        for event in events:
            if not isinstance(event, UUID):
                raise InvalidValueError(f"acknowledge takes notifications or ids of events, not {type(event).__name__}")
        return self._desk.acknowledge(self, events)

    def acknowledge_all(self) -> int:
        """The same for everything that was taken."""
        return self._desk.acknowledge(self, self.inbox.has_taken())

    def redeliver(self) -> int:
        """What was taken and not acknowledged waits again, in its order; how much that is."""
        again = self.inbox.redeliver()
        self._desk.wake(self)
        return again

    def replay(self, since: "Since" = None) -> Iterator[Notification]:
        """What the subscription would get if the events since then came now, from the journal; nothing is changed."""
        return self._desk.replay([self.id], since)

    def unsubscribe(self, policy: "str | Policy | None" = None) -> None:
        """Ends the subscription for good, a durable one too. What waits can still be taken."""
        self._desk.unsubscribe(self.subscriber, self.id, policy)

    def close(self) -> None:
        """Ends the subscription, unless it is durable: that one goes on collecting until it is subscribed to again."""
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
        """What was sealed by somebody who had been revoked by then is passed over."""
        self._desk.check_token(self.subscription)
        notes = self.inbox.take(limit, timeout)
        allowed = [note for note in notes if self._desk.may_have(note)]
        if len(allowed) < len(notes) and self.durable is not None:
            kept = {note.event.id for note in allowed}
            self._desk.acknowledge(self, [note.event.id for note in notes if note.event.id not in kept])
        opened = [self._desk.members.opened(note, self.subscription.policy) for note in allowed]
        if None in opened:
            self._listened().refused += opened.count(None)
        return [note for note in opened if note is not None]

    # For the hub

    def set_policy_findings(self, findings: list[str]) -> None:
        if findings or self._listening is not None:
            self._listened().findings = findings

    def resume(self) -> bool:
        """Its token may be good again; whether its callback had to wait."""
        listening = self._listening
        if listening is None:
            return False
        stalled, listening.stalled = listening.stalled, False
        return stalled

    def attach(self, callback: Callback | None) -> None:
        """Someone listens from now on, and gets what was not acknowledged."""
        self.resume()
        self.inbox.attend()
        if callback is not None or self._listening is not None:
            self._listened().callback = callback
        self.inbox.redeliver()

    def end(self) -> None:
        """Nothing more comes."""
        self.inbox.close()

    def detach(self) -> None:
        if self._listening is not None:
            self._listening.callback = None
        self.inbox.leave()

    def claim(self) -> bool:
        listening = self._listening
        if listening is None:
            return False
        with _TURN:
            if listening.claimed or listening.stalled or listening.callback is None or not self.inbox.ready():
                return False
            listening.claimed = True
            return True

    def release(self) -> None:
        listening = self._listened()
        with _TURN:
            listening.claimed = False

    def run(self, limit: int) -> None:
        """Hands notifications to the callback; returning acknowledges, raising is counted and logged."""
        done: list[UUID] = []
        try:
            for note in self._taken(limit):
                callback = self.callback
                if callback is None or self.inbox.closed:
                    return
                try:
                    callback(note)
                except Exception:
                    self._listened().failed += 1
                    self._desk.callback_failed()
                    _LOG.exception("the callback of the subscription %s raised", self.id)
                else:
                    done.append(note.event.id)
        finally:
            if done and self.durable is not None:
                self._acknowledge_quietly(done)

    def _taken(self, limit: int) -> list[Notification]:
        try:
            return self._take(limit, 0)
        except SecurityError as error:
            self._listened().stalled = True
            self._desk.note(f"the callback of the subscription {self.id} has to wait: {error.reason}")
            return []
        except Exception:
            self._listened().callback = None  # or it would be tried for ever
            _LOG.exception("the subscription %s cannot read on in the journal; its callback is called no more", self.id)
            return []

    def _acknowledge_quietly(self, done: list[UUID]) -> None:
        try:
            self._desk.acknowledge(self, done)
        except Exception:  # they are given again after a restart
            _LOG.exception("what the callback of the subscription %s has done cannot be acknowledged", self.id)
