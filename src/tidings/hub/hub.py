"""The hub: the engine in one process, for any number of clients and threads, in memory or durable in a folder."""

from collections.abc import Iterable
from os import PathLike
from typing import TYPE_CHECKING, Any, Self, overload

import msgspec

from tidings.engine.operations import ApplyNotice, LearnTopic, Revoke
from tidings.engine.settings import Settings
from tidings.hub.client import HasId, HubAdvertisement, HubClient, HubClients, id_of
from tidings.hub.node import HubNode, Stats
from tidings.hub.subscription import HubSubscription
from tidings.model.errors import InvalidValueError
from tidings.model.event import checked_client
from tidings.model.schema import Schema
from tidings.runtime.clock import Clock, SystemClock
from tidings.runtime.journal_store import JournalStore
from tidings.runtime.processor import Processor
from tidings.runtime.queries import explain_event, past_event, possible_event
from tidings.runtime.trust import Provider

if TYPE_CHECKING:
    from tidings.journal import JournalOptions
    from tidings.journal.disk import Disk
    from tidings.model.explanation import Explanation
    from tidings.security.gate import Gate
    from tidings.security.member import SealingMember


class Hub:
    """An embedded hub: `Hub()` keeps its state in memory, `Hub(folder)` journals it and restores it when opened again.

    After a crash, a durable hub has every operation that it acknowledged. Every method may be called from any thread.

    Args:
        folder: The folder of the journal; None for a hub without a journal.
        name: The hub's own client name. Without it, the name stored in the journal, or "hub".
        trust: Decides whether a party belongs to a trust group: a callable of a party and a group, or an object with
            `is_member` and `expiry`.
        govern: The clients whose policies may apply to events of other clients.
        observers: The clients that may see meta-events; None for all clients.
        advertisements_required: Whether the hub refuses events outside their publisher's advertisements.
        host: The host name that policies see.
        schemas: Schemas to define when the hub opens.
        clock: Source of time and entropy; the system's by default.
        options: Options of the journal.
        disk: Writes the journal's files; tests replace it.
        gate: A `tidings.security.Gate`, which checks sealed events and tokens.

    Raises:
        InvalidValueError: An argument is invalid, or the folder's journal belongs to a hub of another name.
        JournalError: The journal cannot be opened.
    """

    def __init__(
        self,
        folder: str | PathLike[str] | None = None,
        *,
        name: str | None = None,
        trust: Provider | None = None,
        govern: Iterable[str] = (),
        observers: Iterable[str] | None = None,
        advertisements_required: bool = False,
        host: str = "",
        schemas: Iterable[Schema] = (),
        clock: Clock | None = None,
        options: "JournalOptions | None" = None,
        disk: "Disk | None" = None,
        gate: "Gate | None" = None,
    ) -> None:
        clock = SystemClock() if clock is None else clock
        # Check all arguments before the folder is opened: a refused argument must not leave the folder locked.
        governing, observing = _names(govern, "govern"), None if observers is None else _names(observers, "observers")
        schemas = [_schema(item) for item in _collection(schemas, "schemas", "Schemas")]
        journal_store = None
        if name is not None:
            checked_client(name)
        if folder == "":
            raise InvalidValueError("folder: a path, or None for a hub in memory; '.' is this folder")
        if folder is not None:
            if not isinstance(folder, str | PathLike):
                raise InvalidValueError(f"folder: a path, or None, not {type(folder).__name__}")
            journal_store = JournalStore(folder, name, clock.entropy(), trust, options, disk)
            name = journal_store.journal.name
        settings = Settings(
            name=name or "hub",
            host=host,
            govern=governing,
            observers=observing,
            advertisements_required=advertisements_required,
        )
        try:
            self._node = HubNode(settings, clock, trust, journal_store, gate)
            self._processor = self._node.processor
            self._clients = HubClients(self._node)
            self._own = HubClient(self._node, self.name)
            for schema in schemas:
                if self._processor.registry.schemas.get(schema.subject) != schema:
                    self._own.schema(schema)
        except BaseException:
            if journal_store is not None:
                journal_store.journal.close()
            raise

    @property
    def name(self) -> str:
        return self._processor.name

    @property
    def processor(self) -> Processor[HubSubscription]:
        """The hub's processor, with the engine, the subscription registry and the journal store, for inspection.

        Changes made directly to these objects are not journaled.
        """
        return self._processor

    @property
    def log(self) -> Any:
        """The last lines that policies and the hub logged; the logger "tidings" receives all of them."""
        return self._processor.log

    @property
    def notes(self) -> list[str]:
        """Remarks from opening and maintaining the journal: unfinished writes, lost rows, failed snapshots."""
        journal_store = self._processor.journal_store
        return [] if journal_store is None else [*journal_store.journal.notes, *journal_store.notes]

    def client(self, name: str, member: "SealingMember | None" = None) -> HubClient:
        """Return the client of that name, creating it if needed; the same object until the client is closed.

        With `member`, a `tidings.security.Member` of the same name, the client seals what it publishes on secure topics
        and decrypts the notifications it takes. The program has to fetch the member's keys.
        """
        if name == self.name:
            raise InvalidValueError(f"{name!r} is the hub's own name; hub.subscribe and hub.advertise act for it")
        return self._clients.client(checked_client(name), member)

    # For the operator: the hub's own advertisements and subscriptions, and policies on those of clients

    def advertise(self, content: Any = "", **given: Any) -> HubAdvertisement:
        """Advertise on behalf of the hub itself; arguments as in `HubClient.advertise`."""
        return self._own.advertise(content, **given)

    def subscribe(self, content: Any = "", **given: Any) -> HubSubscription:
        """Subscribe on behalf of the hub itself; arguments as in `HubClient.subscribe`."""
        return self._own.subscribe(content, **given)

    def unadvertise(self, id: Any, policy: Any = None) -> None:  # noqa: A002
        """Withdraw an advertisement of the hub itself; `policy` holds the rules to run before the removal."""
        self._own.unadvertise(id, policy)

    def unsubscribe(self, id: Any, policy: Any = None) -> None:  # noqa: A002
        """Remove a subscription of the hub itself; `policy` holds the rules to run before the removal."""
        self._own.unsubscribe(id, policy)

    def subscriptions(self) -> list[HubSubscription]:
        """Return the hub's own subscriptions."""
        return self._own.subscriptions()

    def set_policy(self, id: Any, policy: Any) -> list[str]:  # noqa: A002
        """Set the operator's policy on any subscription or advertisement, in addition to its owner's policy.

        None removes the operator's policy. Returns the remarks of the policy check.
        """
        return self._own.set_policy(id, policy)

    def schema(self, schema: Schema | str) -> Schema:
        """Define a schema, or return the schema of a subject; see `HubClient.schema`."""
        return self._own.schema(schema)

    def set_load(self, load: float) -> None:
        """Set the machine's load that policies see, from 0 (idle) to 1."""
        if isinstance(load, bool) or not isinstance(load, int | float) or not 0 <= load <= 1:
            raise InvalidValueError("load: a number from 0 to 1")
        self._processor.set_load(float(load))

    # Secure topics: records, notices and updates are signed, and the engine refuses those that it cannot verify

    def learn(self, record: bytes) -> None:
        """Register a secure topic from its record, signed by the owner: from now on its events need a token."""
        self._node.apply_security_news(LearnTopic(_signed(record, "record")))

    def heed(self, notice: bytes) -> None:
        """Apply a notice of a topic's key management centre: the valid epochs and the withdrawn grants."""
        self._node.apply_security_news(ApplyNotice(_signed(notice, "notice")))

    def revoke(self, update: bytes) -> None:
        """Apply a signed update of the certificate authority's revocation list, effective at once."""
        self._node.apply_security_news(Revoke(_signed(update, "update")))

    # Inspection

    def tables(self) -> Any:
        """Return the engine's advertisements, subscriptions, contexts and policies."""
        with self._processor.lock:
            return self._processor.engine.tables()

    def stats(self) -> Stats:
        """Return the hub's counters since it was opened, and its current numbers of clients and subscriptions."""
        return self._node.stats(len(self._clients))

    def store(self, name: str) -> list[str]:
        """Return the messages that policies persisted under `name`, newest last, as far as they are in memory.

        The journal has all of them.
        """
        with self._processor.lock:
            return [message for store, message in self._processor.registry.stored if store == name]

    @overload
    def explain(
        self, event: Any, subscription: str | HasId, *, publisher: str = ..., **about: Any
    ) -> "Explanation": ...

    @overload
    def explain(
        self, event: Any, subscription: None = None, *, client: str, publisher: str = ..., **about: Any
    ) -> "list[Explanation]": ...

    def explain(
        self,
        event: Any,
        subscription: str | HasId | None = None,
        *,
        client: str | None = None,
        publisher: str = "somebody",
        **about: Any,
    ) -> "Explanation | list[Explanation]":
        """Explain why an event does or does not reach a subscription, or each subscription of a client.

        Each explanation lists the steps and the decisive one.

        Args:
            event: A past event (an `Event`, a receipt, a notification or, in a durable hub, an event id), or the
                attributes of an event that could be published.
            subscription: The subscription to explain; exclusive with `client`.
            client: The client whose subscriptions to explain; exclusive with `subscription`.
            publisher: The publisher of an event given by its attributes.
            **about: `subscribers`, `payload`, `subject` and `policy` of an event given by its attributes, as in
                `publish`.

        Raises:
            InvalidValueError: Both or neither of `subscription` and `client` are given, or the event is malformed.
            RefusedError: The subscription or the event is unknown.
        """
        if (subscription is None) == (client is None):
            raise InvalidValueError("explain takes a subscription or a client")
        past = past_event(self._processor, event)
        explained_event = possible_event(self._processor, publisher, event, **about) if past is None else past
        if subscription is None:
            return explain_event(self._processor, explained_event, None, client, is_past=past is not None)
        return explain_event(self._processor, explained_event, id_of(subscription), None, is_past=past is not None)[0]

    def retain(self, before: int | None = None, max_bytes: int | None = None) -> int:
        """Remove the oldest journal segments, by time or size; return how many.

        `before` is a time in microseconds, `max_bytes` the size that the journal may have. Events still due to a
        durable subscription stay, and so do rows that no snapshot covers.
        """
        journal_store = self._processor.journal_store
        return 0 if journal_store is None else journal_store.upkeep.retain(before, max_bytes)

    def snapshot(self) -> None:
        """Write a snapshot of the current state, so that opening the hub need not read the journal before it."""
        if self._processor.journal_store is not None:
            self._processor.journal_store.upkeep.snapshot()

    def close(self) -> None:
        """Close the hub and its journal.

        What waits in durable subscriptions is there again when the hub is reopened.
        """
        self._node.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        stats = msgspec.structs.asdict(self.stats())
        return f"<hub {self.name}: {stats['clients']} clients, {stats['subscriptions']} subscriptions>"


def _signed(data: Any, what: str) -> bytes:
    if not isinstance(data, bytes):
        raise InvalidValueError(f"{what}: the bytes that were signed (its `data`), not {type(data).__name__}")
    return data


def _schema(schema: Any) -> Schema:
    if not isinstance(schema, Schema):
        raise InvalidValueError(f"schemas: a collection of Schemas, not of {type(schema).__name__}")
    return schema


def _names(names: Iterable[str], what: str) -> frozenset[str]:
    if isinstance(names, str):
        raise InvalidValueError(f"{what}: a collection of names, such as [{names!r}], not one name")
    return frozenset(map(checked_client, _collection(names, what, "names")))


def _collection(values: Any, what: str, element_kind: str) -> Iterable[Any]:
    if not isinstance(values, Iterable):
        raise InvalidValueError(f"{what}: a collection of {element_kind}, not {type(values).__name__}")
    return values
