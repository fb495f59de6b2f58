"""A broker's file: mistakes are named by line or variable, and every value that is in force says where it is from."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.docs.shell import ROOT
from tests.sizes import examples
from tidings.broker.config import Address, BrokerConfiguration, ConfigurationChange
from tidings.broker.config.configuration import variable
from tidings.broker.config.layout import ARRAY_TABLES, SINGLE_TABLES, TABLES
from tidings.broker.config.table_types import keys_of
from tidings.engine.settings import Settings
from tidings.model.errors import InvalidValueError

POLICY = "PolicyStatement { On(Publication) { If {StrictMatch()} Then {BlockMessage()} } }"
GOOD = f"""\
[broker]
name = "b2"
listen = "127.0.0.1:0"
operators = ["ann"]

[journal]
folder = "data/b2"

[[links]]
broker = "b1"
address = "127.0.0.1:7450"

[[links]]
broker = "b3"
cost = 4

[[schemas]]
subject = "Loop"
attributes = {{li = "int", lo = "str"}}

[[subscriptions]]
content = "class = 'a'"
policy = "{POLICY}"

[[trust]]
group = "police"
members = ["ann"]
"""


def written(folder: Path, text: str) -> Path:
    path = folder / "broker.toml"
    path.write_text(text)
    return path


def refusal(path: Path, environment: dict[str, str] | None = None) -> str:
    with pytest.raises(InvalidValueError) as caught:
        BrokerConfiguration.from_file(path, environment or {})
    return str(caught.value)


@pytest.mark.parametrize(
    ("before", "after", "line", "told"),
    [
        ('name = "b2"', 'nam = "b2"', 2, "broker.nam: there is no such key"),
        ('name = "b2"', 'name = ""', 2, "broker.name: a client's name is a string of 1 to"),
        ('name = "b2"', 'strategy = "luck"', 2, "broker.strategy: 'luck' is none of advertisement, asf"),
        ('listen = "127.0.0.1:0"', 'listen = "7450"', 3, "broker.listen: '7450' is no address"),
        ('listen = "127.0.0.1:0"', 'listen = "127.0.0.1:70000"', 3, "broker.listen: '127.0.0.1:70000' is no address"),
        ('listen = "127.0.0.1:0"', 'listen = "0.0.0.0:1"', 3, "broker.listen: other machines can connect there"),
        ('listen = "127.0.0.1:0"', 'advertise = "b2:0"', 3, "broker.advertise: port 0 tells others nothing"),
        ('operators = ["ann"]', 'operators = "ann"', 4, "broker.operators: expected `array`, got `str`"),
        ('operators = ["ann"]', 'operators = ["ann", ""]', 4, "broker.operators: a client's name"),
        ('folder = "data/b2"', "roll_bytes = 0", 7, "journal.roll_bytes: expected `int` >= 1"),
        ('folder = "data/b2"', "retain_days = 0", 7, "journal.retain_days: expected `float` > 0"),
        ('broker = "b1"', 'broker = "b2"', 10, "links[0].broker: a broker has no link to itself"),
        ('broker = "b3"', 'broker = "b1"', 14, "links[1].broker: 'b1' stands in another table of links, too"),
        ('broker = "b3"', "", 13, "links[1].broker: is missing"),
        ("cost = 4", "cost = 0", 15, "links[1].cost: expected `int` >= 1"),
        ("cost = 4", 'address = "b3:0"', 15, "links[1].address: port 0 cannot be called"),
        ('lo = "str"', 'lo = "text"', 19, "schemas[0].attributes: Loop: lo: a type is bool, int, float or str"),
        ("class = 'a'", "class = ", 22, "subscriptions[0].content: the filter ends too early"),
        ("On(Publication)", "On(Advertisement)", 23, "subscriptions[0].policy: rule 1"),
        (
            f'policy = "{POLICY}"',
            'policy_file = "none"',
            23,
            "subscriptions[0].policy_file: {folder}/none: No",
        ),
        ('group = "police"', 'group = ""', 26, "trust[0].group: a group needs a name"),
        (
            "[[trust]]",
            "[limits]\nslow_consumer = 'wait'\n[[trust]]",
            26,
            "limits.slow_consumer: 'wait' is none of",
        ),
        ("[[trust]]", "[limits]\npublications_burst = 3\n[[trust]]", 26, "limits.publications_burst: has no meaning"),
        ("[[trust]]", "[tls]\nkey = 'k'\n[[trust]]", 25, "tls.certificate: is missing"),
        (
            "[[trust]]",
            "[security]\ntopics = ['t']\n[[trust]]",
            26,
            "security.topics: has no meaning without an identity",
        ),
        ("[[trust]]", "[security]\noverlay = ''\n[[trust]]", 26, "security.overlay: an overlay needs a name"),
        ("[[trust]]", "[security]\nfreshness_ms = 0\n[[trust]]", 26, "security.freshness_ms: expected `int` >= 1"),
        (
            "[[trust]]",
            "[tls]\nplain = true\ncertificate = 'c'\nkey = 'k'\nauthority = 'a'\n[[trust]]",
            26,
            "tls.plain: there is a certificate; leave out one of the two",
        ),
        ("[[trust]]", "[logs]\nlevel = 'loud'\n[[trust]]", 26, "logs.level: 'loud' is none of debug, info"),
        ("[[trust]]", "[http]\nlisten = 'here'\n[[trust]]", 26, "http.listen: 'here' is no address"),
        ("[[trust]]", "[doors]\n[[trust]]", 25, "doors: there is no such key"),
        ("[broker]", "broker = 3\n[other]", 1, "broker: expected `object`, got `int`"),
    ],
)
def test_mistakes_are_named_by_line(tmp_path: Path, before: str, after: str, line: int, told: str) -> None:
    assert before in GOOD
    path = written(tmp_path, GOOD.replace(before, after, 1))
    assert refusal(path).startswith(f"{path}:{line}: {told.format(folder=tmp_path)}")


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        ("TIDINGS_LIMITS_CONNECTIONS", "many", "must be a whole number, not 'many'"),
        ("TIDINGS_LIMITS_CONNECTIONS", "0", "expected `int` >= 1"),
        ("TIDINGS_LIMITS_HANDSHAKE_SECONDS", "soon", "must be a number, not 'soon'"),
        ("TIDINGS_BROKER_MERGING", "perhaps", "must be true or false, not 'perhaps'"),
        ("TIDINGS_BROKER_LISTEN", "0.0.0.0:7450", "other machines can connect there"),
        ("TIDINGS_BROKER_LISTN", "0.0.0.0:7450", "there is no such key"),
        ("TIDINGS_BROKER_STRATEGY", "luck", "'luck' is none of advertisement"),
    ],
)
def test_mistakes_in_variables_are_named_by_variable(tmp_path: Path, name: str, text: str, told: str) -> None:
    assert refusal(written(tmp_path, GOOD), {name: text}).startswith(f"{name}: {told}")


def test_variables_win_over_the_file(tmp_path: Path) -> None:
    environment = {
        "TIDINGS_BROKER_NAME": "b9",
        "TIDINGS_BROKER_GOVERN": "ann, bob",
        "TIDINGS_BROKER_OPERATORS": "",
        "TIDINGS_BROKER_ADVERTISEMENTS_REQUIRED": "true",
        "TIDINGS_LIMITS_PUBLICATIONS_PER_SECOND": "2.5",
        "TIDINGS_JOURNAL_RETAIN_BYTES": "",
        "TIDINGS_LOGS_FILE": "here.log",
        "TIDINGS_LONG": "1",
        "HOME": "/",
    }
    path = written(tmp_path, GOOD.replace("[journal]", "[journal]\nretain_bytes = 5"))
    found = BrokerConfiguration.from_file(path, environment)
    assert found.broker.name == "b9"
    assert found.broker.govern == ("ann", "bob")
    assert found.broker.operators == ()
    assert found.broker.advertisements_required is True
    assert found.limits.publications_per_second == 2.5
    assert found.journal.retain_bytes is None
    assert found.logs.file == "here.log"  # as seen from the current folder
    assert found.journal.folder == str(tmp_path / "data" / "b2")  # as seen from the file


def test_the_environment_of_the_process_counts_for_files_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDINGS_BROKER_NAME", "b9")
    assert BrokerConfiguration.from_file(written(tmp_path, GOOD)).broker.name == "b9"
    assert BrokerConfiguration.from_values({}).broker.name == "b1"


def test_each_value_says_where_it_is_from(tmp_path: Path) -> None:
    path = written(tmp_path, GOOD)
    found = {one.key: one for one in BrokerConfiguration.from_file(path, {"TIDINGS_LIMITS_IN_FLIGHT": "7"}).in_force()}
    assert found["broker.name"][1:] == ("b2", f"{path}:2")
    assert found["links[1].cost"][1:] == (4, f"{path}:15")
    assert found["links[0].cost"][1:] == (1, "default")
    assert found["limits.in_flight"][1:] == (7, "TIDINGS_LIMITS_IN_FLIGHT")
    assert found["limits.connections"][1:] == (10_000, "default")
    assert {key.split(".")[0].split("[")[0] for key in found} == TABLES.keys() - {"advertisements"}


def test_a_policy_may_stand_in_a_file_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "zones.policy").write_text(POLICY)
    path = written(tmp_path, GOOD.replace(f'policy = "{POLICY}"', 'policy_file = "zones.policy"'))
    first = BrokerConfiguration.from_file(path, {})
    assert "BlockMessage" in (first.subscriptions[0].policy or "")
    [found] = [one for one in first.in_force() if one.key == "subscriptions[0].policy"]
    assert found.origin == str(tmp_path / "zones.policy")
    (tmp_path / "zones.policy").write_text(POLICY.replace("BlockMessage()", "FloodMessage()"))
    assert first.changes(BrokerConfiguration.from_file(path, {})) == ConfigurationChange(("subscriptions",), ())
    path.write_text(path.read_text() + f"[[advertisements]]\npolicy = '{POLICY}'\npolicy_file = 'zones.policy'\n")
    assert refusal(path).endswith("advertisements[0].policy_file: there is a policy already; one of the two")


SECURE = (
    GOOD.replace("127.0.0.1:0", "0.0.0.0:0")
    + """
[security]
identity = "id"
topics = ["one.topic", "/two.topic"]
"""
)


def test_an_identity_does_for_tls_too(tmp_path: Path) -> None:
    """So one may listen where other machines can connect."""
    found = BrokerConfiguration.from_file(written(tmp_path, SECURE), {})
    folder = tmp_path / "id"
    assert found.security.identity == str(folder)
    assert found.security.topics == (str(tmp_path / "one.topic"), "/two.topic")
    assert found.tls.is_on
    assert (found.tls.certificate, found.tls.key, found.tls.authority) == (
        *(str(folder / "certificate.pem"), str(folder / "key.pem"), str(folder / "authority.pem")),
    )
    origins = {one.key: one.origin for one in found.in_force()}
    assert origins["tls.key"] == "security.identity"
    assert origins["tls.plain"] == "default"


def test_files_of_tls_win_over_those_of_the_identity(tmp_path: Path) -> None:
    said = SECURE + "[tls]\ncertificate = 'c'\nkey = 'k'\nauthority = 'a'\n"
    found = BrokerConfiguration.from_file(written(tmp_path, said), {})
    assert found.tls.key == str(tmp_path / "k")


def test_an_identity_without_tls_is_for_one_machine(tmp_path: Path) -> None:
    plain = SECURE + "[tls]\nplain = true\n"
    assert "other machines can connect there" in refusal(written(tmp_path, plain))
    found = BrokerConfiguration.from_file(written(tmp_path, plain.replace("0.0.0.0:0", "127.0.0.1:0")), {})
    assert found.security.is_on
    assert not found.tls.is_on


def test_the_engine_and_the_journal_get_what_the_file_says() -> None:
    found = BrokerConfiguration.from_values(
        {"broker": {"name": "b7", "observers": [], "settling_ms": 5, "grace_ms": 7}, "journal": {"roll_records": 9}}
    )
    assert found.broker.settings() == Settings(
        name="b7", observers=frozenset(), settling_microseconds=5_000, grace_microseconds=7_000
    )
    assert (found.journal.options().roll_records, found.journal.options().convert) == (9, False)
    assert msgspec.structs.replace(BrokerConfiguration().broker.settings(), name="hub") == Settings()


def test_mistakes_in_values_name_the_key() -> None:
    with pytest.raises(InvalidValueError, match=r"^links\[0\]\.cost: expected `int` >= 1$"):
        BrokerConfiguration.from_values({"links": [{"broker": "b2", "cost": 0}]})


@pytest.mark.parametrize("text", ["127.0.0.1:7450", "[::1]:7450", "localhost:0", "broker-1.example.org:443"])
def test_addresses_are_written_as_they_are_read(text: str) -> None:
    assert str(Address.parse(text)) == text


@pytest.mark.parametrize("text", ["", ":7450", "host", "host:", "host:-1", "host:99999", "::1:7450", "a b:1", "h:1/x"])
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(InvalidValueError, match="is no address"):
        Address.parse(text)


def test_what_listens_to_itself_alone_needs_no_tls() -> None:
    assert [Address(host, 1).is_loopback for host in ("127.0.0.9", "::1", "localhost", "10.0.0.1", "::", "b1")] == [
        *(True, True, True),
        *(False, False, False),
    ]
    beyond: dict[str, Any] = {"broker": {"listen": "0.0.0.0:7450"}, "tls": {"plain_beyond_loopback": True}}
    assert BrokerConfiguration.from_values(beyond).tls.is_on is False


def test_what_can_be_taken_over_is_and_the_rest_is_named(tmp_path: Path) -> None:
    path = written(tmp_path, GOOD)
    first = BrokerConfiguration.from_file(path, {})
    path.write_text(GOOD.replace('"b2"', '"b4"').replace("cost = 4", "cost = 5").replace('"ann"', '"bob"'))
    other = BrokerConfiguration.from_file(path, {"TIDINGS_LIMITS_IN_FLIGHT": "7", "TIDINGS_HTTP_LISTEN": "127.0.0.1:0"})
    change = first.changes(other)
    assert change == ConfigurationChange(
        ("broker.operators", "links", "limits.in_flight", "trust"), ("broker.name", "http.listen")
    )
    taken = first.with_reloadable(other)
    assert (taken.broker.name, taken.broker.operators, taken.links[1].cost) == ("b2", ("bob",), 5)
    assert taken.changes(other) == ConfigurationChange((), change.restart)
    assert first.changes(taken) == ConfigurationChange(change.taken_over, ())
    origins = {one.key: one.origin for one in taken.in_force()}
    assert origins["limits.in_flight"] == "TIDINGS_LIMITS_IN_FLIGHT"
    assert origins["http.listen"] == "default"


def values_of(table: str) -> st.SearchStrategy[dict[str, Any]]:
    """Some keys of a table, each with a value that it may have."""
    numbers = {"publications_burst": st.nothing(), "frame_bytes": st.integers(5_000, 10**6), "patience": st.just(3)}
    kinds: dict[type, st.SearchStrategy[Any]] = {
        msgspec.inspect.BoolType: st.booleans(),
        msgspec.inspect.IntType: st.integers(10, 1_000),
        msgspec.inspect.FloatType: st.floats(0.5, 100),
        msgspec.inspect.VarTupleType: st.lists(st.sampled_from(["ann", "bob", "cy"])),
    }
    known = {key.name: key.type for key in keys_of(SINGLE_TABLES[table])}
    chosen: dict[str, st.SearchStrategy[Any]] = {}
    for name, kind in known.items():
        bare = kind.types[0] if isinstance(kind, msgspec.inspect.UnionType) else kind
        if name not in ("publications_burst", "plain_beyond_loopback", "topics") and type(bare) in kinds:
            chosen[name] = numbers.get(name, kinds[type(bare)])
    return st.fixed_dictionaries({}, optional=chosen)


@examples(60, 2_000)
@given(st.data())
def test_variables_say_what_a_file_would(data: st.DataObject) -> None:
    values = {table: data.draw(values_of(table)) for table in SINGLE_TABLES}
    said = {
        variable(table, key): ",".join(value) if isinstance(value, list) else str(value).lower()
        for table, keys in values.items()
        for key, value in keys.items()
    }
    by_file, by_variables = BrokerConfiguration.from_values(values), BrokerConfiguration.from_values({}, said)
    assert by_file.changes(by_variables) == ConfigurationChange((), ())
    given_keys = {f"{table}.{key}" for table, keys in values.items() for key in keys}
    assert {one.key for one in by_variables.in_force() if one.origin != "default"} == given_keys
    taken = BrokerConfiguration().with_reloadable(by_file)
    assert taken.changes(by_file).taken_over == ()
    assert taken.changes(by_file).restart == BrokerConfiguration().changes(by_file).restart


def test_every_key_is_explained_in_a_sentence() -> None:
    for name, table in TABLES.items():
        for key in keys_of(table):
            assert key.description[0].isupper() or key.description[0] == "`", f"{name}.{key.name}"
            assert key.description.endswith("."), f"{name}.{key.name}"
            assert "|" not in key.description
        assert (table.__doc__ or "").endswith(".")
        if name in ARRAY_TABLES:
            assert len({key.is_reloaded for key in keys_of(table)}) == 1, f"{name} is reloaded whole, or not at all"


def test_the_example_is_a_configuration() -> None:
    found = BrokerConfiguration.from_file(ROOT / "examples" / "broker" / "broker.toml", {})
    assert (found.broker.name, found.journal.folder) == ("b2", "/var/lib/tidings/b2")
    assert [link.broker for link in found.links] == ["b1", "b3"]
