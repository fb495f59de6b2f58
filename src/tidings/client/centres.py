"""Key management centres, as a member asks them: where each can be asked, and what it answers."""

import inspect
from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from tidings.client.asking import ask
from tidings.client.discovery import Discovery
from tidings.client.retry import Retry
from tidings.client.security import Answerer, now
from tidings.model.errors import RefusedError, SecurityError, UnreachableError
from tidings.model.event import Event
from tidings.security.advertised import Advertised
from tidings.security.centre_questions import (
    CHALLENGE,
    CHALLENGED,
    KEYS,
    REWRAP,
    AnswersChallenge,
    Rewrapped,
    WantsRewrapped,
)
from tidings.security.certificates import Role
from tidings.security.encoding import decoded, encoded
from tidings.security.envelope import Seal
from tidings.security.exchange import Service
from tidings.security.member import Member, read_given
from tidings.security.records import TopicRecord
from tidings.security.token import Token

if TYPE_CHECKING:
    from tidings.client.client import Client

_PATIENCE = 5.0  # seconds until a centre, or a discovery node, that does not answer is given up


class Centres:
    """`answer` answers the queries with which a centre makes sure, now and then, who asks; `retry` is for centres and
    discovery nodes that are not there yet."""

    def __init__(
        self,
        client: "Client",
        member: Member,
        services: Iterable[Service] = (),
        answer: Answerer | None = None,
        retry: Retry | None = None,
    ) -> None:
        self._client, self._member, self._answer = client, member, answer
        self._retry = Retry() if retry is None else retry
        self._services = {one.certificate.fingerprint: one for one in services}
        self._discovery = Discovery(client, member.identity, member.credentials)

    async def find(self, query: str) -> None:
        """Learns the topics that discovery nodes have for this member, with the centres that count for them."""
        for one in await self._retry.answer_to(partial(self._advertised, query), has_topic):
            if one.record is not None:
                self._member.credentials.learn(one.record, now())
            elif one.service is not None:
                self._know(one.service)

    async def _advertised(self, query: str) -> list[Advertised]:
        try:
            return await self._discovery.find(query, timeout=_PATIENCE)
        except UnreachableError:
            self._check_list()
            raise

    async def keys(self, record: TopicRecord) -> Token:
        """The token of a topic, and the keys that the member lacks, from the topic's centre."""
        try:
            given = await self._keys(record)
        except RefusedError as error:
            if self._answer is None or not error.reason.startswith(CHALLENGED):
                raise
            await self._prove(record, error.reason.removeprefix(CHALLENGED), self._answer)
            given = await self._keys(record)
        return self._member.take(read_given(given), now())

    async def _keys(self, record: TopicRecord) -> bytes:
        service = await self._service(record)
        wanted = encoded(self._member.wants(record, service.certificate))
        return await self._retry.answer_to(partial(self._ask, record, KEYS, wanted))

    async def _prove(self, record: TopicRecord, query: str, answer: Answerer) -> None:
        said = answer(query)
        if inspect.isawaitable(said):
            said = await said
        await self._ask(record, CHALLENGE, encoded(AnswersChallenge(query, said)))

    async def rewrapped(self, event: Event) -> Event:
        """A sealed event for the latest key of its topic; a `RefusedError` if the member may not have it."""
        seal = Seal.of(event)
        record = self.record_of(event)
        wanted = WantsRewrapped(seal.topic, ((seal.wrapped_in, seal.wrapped, event.timestamp),))
        answer = decoded(await self._ask(record, REWRAP, encoded(wanted)), Rewrapped, "answer of the centre")
        if len(answer.wrapped) != 1 or not answer.wrapped[0]:
            raise RefusedError("authorize", f"{self._member.name} had no right to {record.template} at that time")
        renewed = msgspec.structs.replace(seal, wrapped=answer.wrapped[0], wrapped_in=answer.epoch)
        return msgspec.structs.replace(event, signature=renewed.data)

    def record_of(self, event: Event) -> TopicRecord:
        """Of a sealed event, whose token has been looked at: so its topic is known."""
        record = self._member.credentials.topics.get(Seal.of(event).topic)
        if record is None:
            raise SecurityError("topic", "the event is of a topic that is not known here")
        return record

    async def _ask(self, record: TopicRecord, kind: str, body: bytes) -> bytes:
        service = await self._service(record)
        try:
            return await ask(self._client, self._member.identity, service, kind, body, timeout=_PATIENCE)
        except UnreachableError:  # it may have moved
            self._check_list()
            if not await self._found(record) or self._services[record.kmc] is service:
                raise
        return await ask(self._client, self._member.identity, self._services[record.kmc], kind, body, timeout=_PATIENCE)

    def _check_list(self) -> None:
        """With a list of revocations that is out of date nobody is trusted, nor answered: then that is why."""
        revocations = self._member.credentials.revocations
        if revocations.head is not None:
            revocations.check_fresh(now())

    async def _service(self, record: TopicRecord) -> Service:
        if record.kmc not in self._services and not await self._retry.answer_to(partial(self._found, record), bool):
            raise SecurityError(
                "kmc",
                f"nobody says where the key management centre of {record.template} can be asked: give its service, or "
                "see that a discovery node has it",
            )
        service = self._services[record.kmc]
        service.check(self._member.credentials, Role.KMC, now())
        return service

    async def _found(self, record: TopicRecord) -> bool:
        """Whether discovery nodes know the topic's centre."""
        try:
            found = await self._discovery.find(centre=record.kmc, timeout=_PATIENCE)
        except UnreachableError:
            return False
        for one in found:
            if one.service is not None:
                self._know(one.service)
        return record.kmc in self._services

    def _know(self, service: Service) -> None:
        known = self._services.get(service.certificate.fingerprint)
        if known is None or known.version < service.version:
            self._services[service.certificate.fingerprint] = service


def has_topic(found: list[Advertised]) -> bool:
    """Whether a topic is among what discovery nodes have found: not centres alone."""
    return any(one.record is not None for one in found)
