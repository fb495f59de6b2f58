"""Secure topics from a client's side: what is published on them is sealed, and what comes is opened, by itself."""

import asyncio
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tidings as td
from tests.broker.cases import address, connect, run, running
from tests.client.kmc import Centre, Files, Serving, Topic, centre, entity, member, secure
from tests.sizes import examples
from tidings import policies
from tidings.client.secure.settings import Security
from tidings.model.errors import InvalidValueError, SecurityError
from tidings.security.sealing.envelope import Seal


def test_what_is_published_is_sealed_on_its_way_and_readable_where_it_arrives() -> None:
    async def scenario() -> None:
        async with running() as broker, centre(broker) as kmc, connect(broker, "spy") as spy:
            topic = kmc.topic("Sports=NBA,Team=*")
            topic.grant("pub", "publish")
            topic.grant("fan", "subscribe")
            async with secure(broker, "pub", kmc, topic) as pub, secure(broker, "fan", kmc, topic) as fan:
                seen = await spy.subscribe("Sports = 'NBA'", raw=True)
                hidden = await spy.subscribe("Sports = 'NBA'")
                held = await fan.subscribe("Sports = 'NBA' AND Team = 'Lakers'")
                receipt = await pub.publish({"Sports": "NBA", "Team": "Lakers"}, payload=b"99:98")
                assert receipt.event.payload == b"99:98"
                (note,) = await held.take(timeout=60)
                assert (note.payload, dict(note.attributes)) == (b"99:98", {"Sports": "NBA", "Team": "Lakers"})
                assert note.event.signature is None
                assert note.event.token is None
                (sealed,) = await seen.take(timeout=60)
                assert b"99:98" not in (sealed.payload or b"")
                assert Seal.of(sealed.event).epoch == 1
                assert (hidden.refused, hidden.waiting) == (1, 0)
                await pub.publish({"Sports": "NFL"}, payload=b"plain")
            assert [kind for who, kind in kmc.asked if who == "pub"] == ["keys"]

    run(scenario())


def test_a_receipt_says_under_which_epoch_the_event_was_sealed() -> None:
    async def scenario() -> None:
        async with running() as broker, centre(broker) as kmc:
            topic = kmc.topic("Sports=NBA,Team=*")
            topic.grant("pub", "publish")
            async with secure(broker, "pub", kmc, topic) as pub:
                game = {"Sports": "NBA", "Team": "NYK"}
                first = await pub.publish(game, sealed=True)
                many = await pub.publish_many([game, game], sealed=True)
                plain = await pub.publish({"Sports": "NFL"})
                assert [one.sealed for one in (first, *many, plain)] == [1, 1, 1, None]

    run(scenario())


WRONG = [{"Sport": "NBA", "Team": "NYK"}, {"Sports": "NBA"}, {"Sports": "nba", "Team": "NYK"}]


def test_what_has_to_be_sealed_never_goes_in_the_clear() -> None:
    async def scenario() -> None:
        async with running() as broker, centre(broker) as kmc, connect(broker, "spy") as spy:
            topic = kmc.topic("Sports=NBA,Team=*")
            topic.grant("pub", "publish")
            async with secure(broker, "pub", kmc, topic) as pub, secure(broker, "other", kmc) as other:
                seen = await spy.subscribe("Sports IS NOT NULL OR Sport IS NOT NULL", raw=True)
                for event in WRONG:
                    with pytest.raises(SecurityError, match=r"in the clear.*\(Sports=NBA,Team=\*\)"):
                        await pub.publish(event, payload=b"secret", sealed=True)
                    with pytest.raises(SecurityError, match="other knows no secure topic"):
                        await other.publish(event, payload=b"secret", sealed=True)
                with pytest.raises(SecurityError, match="in the clear"):
                    await pub.publish_many(WRONG, payload=b"secret", sealed=True)
                with pytest.raises(InvalidValueError, match="spy has no identity to seal events with"):
                    await spy.publish(WRONG[0], payload=b"secret", sealed=True)
                await pub.publish({"Sports": "the last"})
                (note,) = await seen.take(timeout=60)
                assert note.attributes["Sports"] == "the last"

    run(scenario())


def test_what_is_published_together_has_one_signature_and_keeps_its_order() -> None:
    async def scenario() -> None:
        async with running() as broker, centre(broker) as kmc, connect(broker, "spy") as spy:
            topic = kmc.topic("/Sports/Football")
            topic.grant("pub", "publish")
            topic.grant("fan", "subscribe")
            async with secure(broker, "pub", kmc, topic) as pub, secure(broker, "fan", kmc, topic) as fan:
                held, seen = await fan.subscribe(subject="/Sports/Football"), await spy.subscribe(raw=True)
                subjects = [None if n % 50 == 7 else "/Sports/Football" for n in range(200)]
                receipts = await asyncio.gather(
                    *(pub.publish({"n": n}, subject=one, payload=b"%d" % n) for n, one in enumerate(subjects))
                )
                assert [one.event.attributes["n"] for one in receipts] == list(range(200))
                notes: list[td.Notification] = []
                while len(notes) < 196:
                    notes += await held.take(timeout=60)
                assert [note.payload for note in notes] == [b"%d" % n for n in range(200) if n % 50 != 7]
                came: list[td.Notification] = []
                while len(came) < 200:
                    came += [one for one in await seen.take(timeout=60) if "n" in one.attributes]
                assert [one.attributes["n"] for one in came] == list(range(200))
                sealed = [Seal.of(one.event) for one in came if one.event.signature is not None]
                assert len({one.signature for one in sealed}) <= 10
                assert {one.size for one in sealed} > {1} or max(one.size for one in sealed) > 10

    run(scenario())


def test_who_may_not_is_told_what_is_missing_and_from_whom() -> None:
    async def scenario() -> None:
        async with running() as broker, centre(broker) as kmc:
            topic = kmc.topic("Sports=NBA")
            topic.grant("reader", "subscribe")
            async with secure(broker, "nobody", kmc, topic) as nobody, secure(broker, "reader", kmc, topic) as reader:
                with pytest.raises(SecurityError, match=r"granted nothing on Sports=NBA.*owner, league, can grant the"):
                    await nobody.publish({"Sports": "NBA"}, payload=b"x")
                with pytest.raises(SecurityError, match="right to subscribe"):
                    await nobody.subscribe("Sports = 'NBA'")
                with pytest.raises(SecurityError, match=r"gives no right to publish.*league"):
                    await reader.publish({"Sports": "NBA"}, payload=b"x")
                assert (await nobody.publish({"Sports": "NFL"})).offset >= 0

    run(scenario())


@pytest.mark.parametrize("as_folder", [True, False], ids=["a folder", "an identity"])
def test_one_identity_serves_tls_and_secure_topics(tmp_path: Path, as_folder: bool) -> None:
    async def scenario() -> None:
        topic = Topic("Sports=NBA")
        topic.grant("pub", "publish", "subscribe")
        tables = Files(tmp_path, topic).security("b1") | {"tls": {}}
        entity("pub").save(tmp_path / "pub")
        entity("kmc-1").save(tmp_path / "kmc-1")
        async with running(**tables) as broker, td.connect(address(broker), identity=tmp_path / "kmc-1") as client:
            kmc = Centre(client)
            await kmc.answering.begin(kmc.service.topic)
            kmc.topics[topic.record.id] = topic
            given = Security(services=(kmc.service,), topics=(topic.record,))
            who = tmp_path / "pub" if as_folder else entity("pub")
            async with td.connect(address(broker), identity=who, security=given) as pub:
                assert pub.name == "pub"
                held = await pub.subscribe("Sports = 'NBA'")
                await pub.publish({"Sports": "NBA"}, payload=b"secret")
                assert [one.payload for one in await held.take(timeout=60)] == [b"secret"]

    run(scenario())


def test_what_is_given_and_does_not_fit_is_said_so(tmp_path: Path) -> None:
    with pytest.raises(InvalidValueError, match="has that of its certificate, pub"):
        td.connect(name="other", identity=entity("pub"))
    with pytest.raises(InvalidValueError, match="security: is for clients with the identity of an authority"):
        td.connect(security=Security())
    with pytest.raises(InvalidValueError, match=r"security: .*nowhere: No such file"):
        td.connect(identity=entity("pub"), security=Security(topics=(tmp_path / "nowhere",)))
    with pytest.raises(InvalidValueError, match="a ServiceRecord or the file of one, not int"):
        td.connect(identity=entity("pub"), security=Security(services=(7,)))  # type: ignore[arg-type]


def test_the_synchronous_face_seals_and_opens_too(tmp_path: Path) -> None:
    topic = Topic("Sports=NBA,Team=*")
    topic.grant("pub", "publish", "subscribe")
    serving = Serving(Files(tmp_path, topic).security("b1"), topic)
    with serving as (where, service):
        given = Security(services=(service,))
        with td.connect_sync(where, member=member("pub", topic), security=given) as pub:
            refused = []
            held = pub.subscribe("Sports = 'NBA'", on_refused=lambda note, error: refused.append(error))
            pub.publish_many([{"Sports": "NBA", "Team": one} for one in "abc"], payload=b"secret")
            taken: list[td.Notification] = []
            while len(taken) < 3:
                taken += held.take(timeout=60)
            assert [(one.attributes["Team"], one.payload) for one in taken] == [(one, b"secret") for one in "abc"]
            assert (held.refused, refused) == (0, [])


POLICIES = [
    None,
    str(policies.remove("score")),
    str(policies.keep_only("Sports", "Team")),
    str(policies.trim()),
    str(policies.prev_hop()),
]
VALUES = st.one_of(
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=20),
)
NAMES = st.sampled_from(["score", "a", "B", "the name", "n"])


class Published(NamedTuple):
    attributes: dict[str, Any]
    context: dict[str, Any]
    payload: bytes
    policy: str | None


published = st.builds(
    Published,
    st.dictionaries(NAMES, VALUES, max_size=4),
    st.dictionaries(NAMES, VALUES, max_size=3),
    st.binary(max_size=200),
    st.sampled_from(POLICIES),
)


@examples(10, 200)
@given(st.lists(published, min_size=1, max_size=12))
def test_what_is_opened_is_what_was_sealed_whatever_policies_took_away(
    tmp_path_factory: pytest.TempPathFactory, series: list[Published]
) -> None:
    """What is left of the attributes is as it was, and the payload always is; a plain subscriber sees the same of plain
    events."""

    async def scenario() -> None:
        topic = Topic("Sports=NBA,Team=*")
        topic.grant("pub", "publish")
        topic.grant("fan", "subscribe")
        tables = Files(tmp_path_factory.mktemp("files"), topic).security("b1")
        async with running(**tables) as broker, centre(broker) as kmc:
            kmc.topics[topic.record.id] = topic
            async with secure(broker, "pub", kmc, topic) as pub, secure(broker, "fan", kmc, topic) as fan:
                for place, one in enumerate(series):
                    held = await fan.subscribe("Sports = 'NBA'", id="sealed", policy=one.policy)
                    plain = await fan.subscribe("Sports = 'NFL'", id="plain", policy=one.policy)
                    await pub.set_context(one.context)
                    said = {**one.attributes, "Team": "NYK"}
                    for sport in ("NBA", "NFL"):
                        await pub.publish({**said, "Sports": sport}, payload=one.payload)
                    (opened,), (other,) = await held.take(timeout=60), await plain.take(timeout=60)
                    assert opened.payload == (one.payload or None)
                    same = {**other.attributes, **({"Sports": "NBA"} if "Sports" in other.attributes else {})}
                    assert dict(opened.attributes) == same, place
                    assert dict(opened.added).keys() == opened.attributes.keys() - {*said, "Sports"}
                    assert opened.event.context == other.event.context
                    assert held.refused == 0

    run(scenario())


@pytest.mark.parametrize("convert", ["xml", "json"])
def test_what_a_policy_wants_converted_is_converted_after_opening(tmp_path: Path, convert: str) -> None:
    """As it would be of a plain event; brokers leave what is sealed as it is."""

    async def scenario() -> None:
        topic = Topic("Sports=NBA")
        topic.grant("pub", "publish", "subscribe")
        tables = Files(tmp_path, topic).security("b1")
        async with running(**tables) as broker, centre(broker) as kmc:
            kmc.topics[topic.record.id] = topic
            async with secure(broker, "pub", kmc, topic) as pub:
                policy = policies.remove("score", convert=convert)
                sealed = await pub.subscribe("Sports = 'NBA'", policy=policy)
                plain = await pub.subscribe("Sports = 'NFL'")
                await pub.set_policy(plain, policy)
                for sport in ("NBA", "NFL"):
                    await pub.publish({"Sports": sport, "score": 3}, payload=b"99:98", subject="Game")
                (opened,), (other,) = await sealed.take(timeout=60), await plain.take(timeout=60)
                assert opened.payload is not None
                assert b"99:98" in opened.payload
                assert opened.payload == (other.payload or b"").replace(b"NFL", b"NBA")
                assert opened.event.payload == opened.payload

    run(scenario())


def test_what_should_be_sealed_and_is_not_is_refused() -> None:
    """A broker that checks nothing lets anybody publish on the topic; subscribers are not taken in."""

    async def scenario() -> None:
        async with running() as broker, centre(broker) as kmc, connect(broker, "eve") as eve:
            topic = kmc.topic("Sports=NBA,Team=*")
            topic.grant("fan", "subscribe")
            async with secure(broker, "fan", kmc, topic) as fan:
                reasons: list[str] = []
                broad = await fan.subscribe("score > 0", on_refused=lambda _, error: reasons.append(str(error)))
                confined = await fan.subscribe("Sports = 'NBA' AND Team = 'NYK'", policy=policies.remove("Team"))
                await eve.publish({"Sports": "NBA", "Team": "NYK", "score": 1}, payload=b"a lie")
                await eve.publish({"Sports": "NFL", "score": 2})
                assert [one.attributes["score"] for one in await broad.take(timeout=60)] == [2]
                assert reasons == ["the event is on the secure topic Sports=NBA,Team=*, and is not sealed"]
                assert (confined.refused, confined.waiting) == (1, 0)

    run(scenario())
