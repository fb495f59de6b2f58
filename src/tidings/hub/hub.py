"""The hub: the engine in one process, for any number of clients and threads, in memory or durable in a folder."""

from collections.abc import Iterable
from os import PathLike
from typing import TYPE_CHECKING, Any, Self, overload

import msgspec

from tidings.engine.operations import Heed, Learn, Revoke
from tidings.engine.settings import Settings
from tidings.hub.archive import Archive
from tidings.hub.client import Client, HubAdvertisement, given_id
from tidings.hub.clock import Clock, SystemClock
from tidings.hub.desk import Desk
from tidings.hub.inquiry import explained, past_event, possible_event
from tidings.hub.stats import Stats
from tidings.hub.subscription import HubSubscription
from tidings.hub.trust import Provider
from tidings.model.errors import InvalidValueError
from tidings.model.event import checked_client
from tidings.model.schema import Schema

if TYPE_CHECKING:
    from tidings.journal import JournalOptions
    from tidings.journal.disk import Disk
    from tidings.model.explanation import Explanation
    from tidings.security.gate import Gate
    from tidings.security.member import Member


class Hub:
    """`Hub()` lives in memory; `Hub(folder)` has everything again that it acknowledged, whatever happened to it.

    `trust` answers who belongs to a trust group: a callable of a party and a group, or an object with `is_member` and
    `expiry`. `govern` names the clients whose policies may concern others; `observers` those who may see meta-events
    (None: everybody). `gate` (a `tidings.security.Gate`) checks what is sealed, and who may have it. Every method may
    be called from any thread.
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
        # Everything is checked before the folder is opened: one that was refused must not stay locked.
        governing, observing = _names(govern, "govern"), None if observers is None else _names(observers, "observers")
        schemas = [_schema(one) for one in _collection(schemas, "schemas", "Schemas")]
        archive = None
        if name is not None:
            checked_client(name)
        if folder == "":
            raise InvalidValueError("folder: a path, or None for a hub in memory; '.' is this folder")
        if folder is not None:
            if not isinstance(folder, str | PathLike):
                raise InvalidValueError(f"folder: a path, or None, not {type(folder).__name__}")
            archive = Archive(folder, name, clock.entropy(), trust, options, disk)
            name = archive.journal.name
        settings = Settings(
            name=name or "hub",
            host=host,
            govern=governing,
            observers=observing,
            advertisements_required=advertisements_required,
        )
        try:
            self._desk = Desk(settings, clock, trust, archive, gate)
            self._own = Client(self._desk, self.name)
            for schema in schemas:
                if self._desk.roster.schemas.get(schema.subject) != schema:
                    self._own.schema(schema)
        except BaseException:
            if archive is not None:
                archive.journal.close()
            raise

    @property
    def name(self) -> str:
        return self._desk.name

    @property
    def desk(self) -> Desk:
        """The state of the hub (engine, roster, archive) and its operations, to examine them: a change that is made
        there is not journaled."""
        return self._desk

    @property
    def log(self) -> Any:
        """The last lines that policies and the hub itself have logged; `logging.getLogger("tidings")` has all."""
        return self._desk.log

    @property
    def notes(self) -> list[str]:
        """What opening the journal and keeping it had to tell: unfinished writes, lost rows, failed snapshots."""
        archive = self._desk.archive
        return [] if archive is None else [*archive.journal.notes, *archive.notes]

    def client(self, name: str, member: "Member | None" = None) -> Client:
        """The client of that name; always the same one, until it is closed.

        As a `tidings.security.Member` of that name it seals what it publishes on secure topics, and opens what it
        takes; its keys are for the program to fetch.
        """
        if name == self.name:
            raise InvalidValueError(f"{name!r} is the hub's own name; hub.subscribe and hub.advertise act for it")
        return self._desk.client(checked_client(name), member)

    # What the operator has here: filters of the hub's own, with policies, and policies on the filters of others

    def advertise(self, content: Any = "", **given: Any) -> HubAdvertisement:
        """As `Client.advertise`, for the hub itself."""
        return self._own.advertise(content, **given)

    def subscribe(self, content: Any = "", **given: Any) -> HubSubscription:
        """As `Client.subscribe`, for the hub itself."""
        return self._own.subscribe(content, **given)

    def unadvertise(self, id: Any, policy: Any = None) -> None:  # noqa: A002
        self._own.unadvertise(id, policy)

    def unsubscribe(self, id: Any, policy: Any = None) -> None:  # noqa: A002
        self._own.unsubscribe(id, policy)

    def subscriptions(self) -> list[HubSubscription]:
        """The hub's own."""
        return self._own.subscriptions()

    def set_policy(self, id: Any, policy: Any) -> list[str]:  # noqa: A002
        """The operator's policy on any subscription or advertisement, beside the owner's; the findings."""
        return self._own.set_policy(id, policy)

    def schema(self, schema: Schema | str) -> Schema:
        """As `Client.schema`."""
        return self._own.schema(schema)

    def set_load(self, load: float) -> None:
        """How busy the machine is, from 0 to 1, as policies see it."""
        if isinstance(load, bool) or not isinstance(load, int | float) or not 0 <= load <= 1:
            raise InvalidValueError("load: a number from 0 to 1")
        self._desk.set_load(float(load))

    # What is known of secure topics: all of it is signed, and what cannot be trusted is refused

    def learn(self, record: bytes) -> None:
        """The record of a secure topic, signed by its owner: from now on events on it need a token."""
        self._desk.assure(Learn(_signed(record, "record")))

    def heed(self, notice: bytes) -> None:
        """A notice of a topic's key management centre: which epochs count, and whose grants do no more."""
        self._desk.assure(Heed(_signed(notice, "notice")))

    def revoke(self, update: bytes) -> None:
        """An update of the authority's list of revocations: it is obeyed at once."""
        self._desk.assure(Revoke(_signed(update, "update")))

    # Looking inside

    def tables(self) -> Any:
        """Advertisements, subscriptions, contexts and policies, as the engine has them."""
        with self._desk.guard:
            return self._desk.engine.tables()

    def stats(self) -> Stats:
        return self._desk.counted()

    def store(self, name: str) -> list[str]:
        """What policies have persisted under that name, as far as it is still in memory; a journal has all of it."""
        with self._desk.guard:
            return [message for store, message in self._desk.roster.stored if store == name]

    @overload
    def explain(
        self, event: Any, subscription: str | HubSubscription, *, publisher: str = ..., **about: Any
    ) -> "Explanation": ...

    @overload
    def explain(
        self, event: Any, subscription: None = None, *, client: str, publisher: str = ..., **about: Any
    ) -> "list[Explanation]": ...

    def explain(
        self,
        event: Any,
        subscription: str | HubSubscription | None = None,
        *,
        client: str | None = None,
        publisher: str = "somebody",
        **about: Any,
    ) -> "Explanation | list[Explanation]":
        """Why an event does, or does not, reach a subscription, or each one of a client: every step, and what decided.

        The event is a past one (an `Event`, a receipt, a notification, or, if the hub is durable, an id), or one that
        might come: a mapping of attributes, with its `publisher`, and `subscribers`, `payload`, `subject` and `policy`
        as in `publish`.
        """
        if (subscription is None) == (client is None):
            raise InvalidValueError("explain takes a subscription or a client")
        past = past_event(self._desk, event)
        given = possible_event(self._desk, publisher, event, **about) if past is None else past
        if subscription is None:
            return explained(self._desk, given, None, client, is_past=past is not None)
        return explained(self._desk, given, given_id(subscription), None, is_past=past is not None)[0]

    def retain(self, before: int | None = None, max_bytes: int | None = None) -> int:
        """Removes the oldest segments of the journal: those before a time (microseconds), or over a size; how many.

        What is still due to a durable subscription stays, and so does what no snapshot stands for.
        """
        archive = self._desk.archive
        return 0 if archive is None else archive.retain(self._desk, before, max_bytes)

    def snapshot(self) -> None:
        """Writes down the state as it is now, so that opening need not read what came before."""
        if self._desk.archive is not None:
            self._desk.archive.snapshot(self._desk)

    def close(self) -> None:
        """Ends it: everything waiting in durable subscriptions is there again when the folder is opened."""
        self._desk.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        held = msgspec.structs.asdict(self.stats())
        return f"<hub {self.name}: {held['clients']} clients, {held['subscriptions']} subscriptions>"


def _signed(data: Any, what: str) -> bytes:
    if not isinstance(data, bytes):
        raise InvalidValueError(f"{what}: the bytes that were signed (its `data`), not {type(data).__name__}")
    return data


def _schema(given: Any) -> Schema:
    if not isinstance(given, Schema):
        raise InvalidValueError(f"schemas: a collection of Schemas, not of {type(given).__name__}")
    return given


def _names(names: Iterable[str], what: str) -> frozenset[str]:
    if isinstance(names, str):
        raise InvalidValueError(f"{what}: a collection of names, such as [{names!r}], not one name")
    return frozenset(map(checked_client, _collection(names, what, "names")))


def _collection(given: Any, what: str, of: str) -> Iterable[Any]:
    if not isinstance(given, Iterable):
        raise InvalidValueError(f"{what}: a collection of {of}, not {type(given).__name__}")
    return given
