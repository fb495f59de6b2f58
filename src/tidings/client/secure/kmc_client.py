"""A member's client of key management centres: locates the centre of a topic, and asks it for tokens and keys."""

import inspect
from collections.abc import Awaitable, Callable, Iterable
from functools import partial

import msgspec

from tidings.client.secure.discovery import Discovery
from tidings.client.secure.service_rpc import Retry, ServiceClient, ask, now
from tidings.model.errors import RefusedError, SecurityError, UnreachableError
from tidings.model.event import Event
from tidings.security.ca.certificates import Role
from tidings.security.encoding import decode_canonical, encode_canonical
from tidings.security.member import KeyHolder, decode_key_response
from tidings.security.rpc.kmc_messages import (
    CHALLENGE,
    CHALLENGED,
    KEYS,
    REWRAP,
    AnswerChallengeRequest,
    RewrapRequest,
    RewrapResponse,
)
from tidings.security.rpc.messages import ServiceRecord
from tidings.security.sealing.envelope import Seal
from tidings.security.tdn.discovery_records import DiscoveryRecord
from tidings.security.tokens.token import Token
from tidings.security.topic_record import TopicRecord

_ANSWER_SECONDS = 5.0  # seconds to wait for a centre or a discovery node
Answerer = Callable[[str], str | Awaitable[str]]  # answers a challenge of a centre


class KmcClient:
    """Asks the key management centres of a member's topics.

    `answer` answers the challenges by which a centre verifies a member now and then; `retry` retries centres and
    discovery nodes that are still starting.
    """

    def __init__(
        self,
        client: ServiceClient,
        member: KeyHolder,
        services: Iterable[ServiceRecord] = (),
        answer: Answerer | None = None,
        retry: Retry | None = None,
    ) -> None:
        self._client, self._member, self._answer = client, member, answer
        self._retry = Retry() if retry is None else retry
        self._services = {service.certificate.fingerprint: service for service in services}
        self._discovery = Discovery(client, member.identity, member.credentials)

    async def find(self, query: str) -> None:
        """Learn the topics that discovery nodes list for this member, and their centres."""
        for discovered in await self._retry.answer_to(partial(self._advertised, query), has_topic):
            if discovered.record is not None:
                self._member.credentials.learn(discovered.record, now())
            elif discovered.service is not None:
                self._remember_service(discovered.service)

    async def _advertised(self, query: str) -> list[DiscoveryRecord]:
        try:
            return await self._discovery.find(query, timeout=_ANSWER_SECONDS)
        except UnreachableError:
            self._check_list()
            raise

    async def keys(self, record: TopicRecord) -> Token:
        """Get the token of a topic, and the keys that the member lacks, from the topic's centre.

        Raises:
            RefusedError: The centre refuses, for example because the member has no grant.
            UnreachableError: The centre has not answered.
        """
        try:
            response = await self._keys(record)
        except RefusedError as error:
            if self._answer is None or not error.reason.startswith(CHALLENGED):
                raise
            await self._answer_challenge(record, error.reason.removeprefix(CHALLENGED), self._answer)
            response = await self._keys(record)
        return self._member.take(decode_key_response(response), now())

    async def _keys(self, record: TopicRecord) -> bytes:
        service = await self._service(record)
        request = encode_canonical(self._member.wants(record, service.certificate))
        return await self._retry.answer_to(partial(self._ask, record, KEYS, request))

    async def _answer_challenge(self, record: TopicRecord, query: str, answer: Answerer) -> None:
        """Answer the centre's challenge."""
        reply = answer(query)
        if inspect.isawaitable(reply):
            reply = await reply
        await self._ask(record, CHALLENGE, encode_canonical(AnswerChallengeRequest(query, reply)))

    async def rewrapped(self, event: Event) -> Event:
        """Have the centre wrap a sealed event's content key in the latest key of its topic.

        Return the event with that seal.

        Raises:
            RefusedError: The member had no right to the topic when the event was published.
        """
        seal = Seal.of(event)
        record = self.record_of(event)
        request = RewrapRequest(seal.topic, ((seal.wrapped_in, seal.wrapped, event.timestamp),))
        answer = decode_canonical(
            await self._ask(record, REWRAP, encode_canonical(request)), RewrapResponse, "answer of the centre"
        )
        if len(answer.wrapped) != 1 or not answer.wrapped[0]:
            raise RefusedError("authorize", f"{self._member.name} had no right to {record.template} at that time")
        renewed = msgspec.structs.replace(seal, wrapped=answer.wrapped[0], wrapped_in=answer.epoch)
        return msgspec.structs.replace(event, signature=renewed.data)

    def record_of(self, event: Event) -> TopicRecord:
        """Return the topic of a sealed event whose token was checked before, so that its topic is known."""
        record = self._member.credentials.topics.get(Seal.of(event).topic)
        if record is None:
            raise SecurityError("topic", "the event is of a topic that is not known here")
        return record

    async def _ask(self, record: TopicRecord, kind: str, body: bytes) -> bytes:
        service = await self._service(record)
        try:
            return await ask(self._client, self._member.identity, service, kind, body, timeout=_ANSWER_SECONDS)
        except UnreachableError:  # the centre may have moved to another topic
            self._check_list()
            if not await self._discover(record) or self._services[record.kmc] is service:
                raise
        return await ask(
            self._client, self._member.identity, self._services[record.kmc], kind, body, timeout=_ANSWER_SECONDS
        )

    def _check_list(self) -> None:
        """Raise the error that the revocation list is out of date, if it is: then no service is trusted or answers."""
        revocations = self._member.credentials.revocations
        if revocations.head is not None:
            revocations.check_fresh(now())

    async def _service(self, record: TopicRecord) -> ServiceRecord:
        """Return the service of the topic's centre, looking it up at discovery nodes if needed."""
        if record.kmc not in self._services and not await self._retry.answer_to(partial(self._discover, record), bool):
            raise SecurityError(
                "kmc",
                f"the key management centre of {record.template} cannot be found: give its service record, or "
                "advertise the centre at a discovery node",
            )
        service = self._services[record.kmc]
        service.check(self._member.credentials, Role.KMC, now())
        return service

    async def _discover(self, record: TopicRecord) -> bool:
        """Look the topic's centre up at discovery nodes; return whether it is known now."""
        try:
            records = await self._discovery.find(centre=record.kmc, timeout=_ANSWER_SECONDS)
        except UnreachableError:
            return False
        for discovered in records:
            if discovered.service is not None:
                self._remember_service(discovered.service)
        return record.kmc in self._services

    def _remember_service(self, service: ServiceRecord) -> None:
        present = self._services.get(service.certificate.fingerprint)
        if present is None or present.version < service.version:
            self._services[service.certificate.fingerprint] = service


def has_topic(records: list[DiscoveryRecord]) -> bool:
    """Return whether the records found include a topic, and not only centres."""
    return any(discovered.record is not None for discovered in records)
