"""The format of step files: every history can be written and read back, and a mistake is named by its line."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.simulation.strategies import histories
from tests.sizes import examples
from tests.strategies import characters, floats, integers
from tidings.model.errors import InvalidValueError
from tidings.policy import policies as ready_policies
from tidings.routing import STRATEGIES
from tidings.simulation.checking.history import History
from tidings.simulation.checking.random_histories import draw_history
from tidings.simulation.checking.steps import (
    Advertises,
    Leaves,
    Moves,
    Publishes,
    Returns,
    SetsContext,
    Settles,
    Step,
    Subscribes,
    Unadvertises,
    Unsubscribes,
    Waits,
)
from tidings.simulation.faults import Crash, Cut, Fault, Heal, Lossy, Pause, Restart, Resume, Slow, draw_faults
from tidings.simulation.step_file import StepFile, read, write
from tidings.simulation.topologies import Edge, Topology

NEWLINE = "\n"
HEADER = "brokers b1 b2 b3\nlink b1 b2\nclient c1 b1\n"
names = st.one_of(
    st.sampled_from(
        ["b1", "cut", "one-way", "at", "subscribers", "client", "a b", "#", '"', "\\", "=", ",", "\n", "0", "ä"]
    ),
    st.text(characters, min_size=1, max_size=8),
)
attribute_names = names.filter(lambda name: not name.startswith("$"))
values = st.one_of(st.booleans(), integers, floats, names, st.just(""))
numbers = st.floats(0, 1e9)
parts = st.floats(0, 1)
contents = st.sampled_from(["", "a > 1", "s = '\"# '", "TRUE"])
context_filters = st.sampled_from([None, "x > 0", "x = this.x", "s = 'a, b'"])
policies = st.sampled_from([None, str(ready_policies.trim())])
offers = st.lists(attribute_names, max_size=3).map(tuple)


def steps_of(client: str, topology: Topology) -> st.SearchStrategy[Step]:
    """Steps of every type, with any values in their fields."""
    me, links, brokers = st.just(client), st.sampled_from(topology.edges), st.sampled_from(topology.brokers)
    mappings = st.dictionaries(attribute_names, values, max_size=3)
    broker_faults: list[type[Crash | Restart | Pause | Resume]] = [Crash, Restart, Pause, Resume]
    return st.one_of(
        st.builds(Subscribes, me, names, contents, context_filters, policies, st.none() | names),
        st.builds(Unsubscribes, me, names),
        st.builds(Advertises, me, names, contents, offers, offers),
        st.builds(Unadvertises, me, names),
        st.builds(SetsContext, me, mappings),
        st.builds(Publishes, me, mappings, context_filters),
        st.builds(Leaves, me),
        st.builds(Returns, me),
        st.builds(Moves, me, brokers),
        st.builds(Waits, numbers),
        st.just(Settles()),
        st.builds(lambda at, link, one_way: Cut(at, link.one, link.other, one_way), numbers, links, st.booleans()),
        st.builds(lambda at, link: Heal(at, link.one, link.other), numbers, links),
        st.builds(lambda at, link, factor: Slow(at, link.one, link.other, factor), numbers, links, numbers),
        st.builds(
            lambda at, link, part: Lossy(at, link.one, link.other, *part),
            numbers,
            links,
            st.tuples(parts, parts, parts),
        ),
        *(st.builds(fault, numbers, brokers) for fault in broker_faults),
    )


@st.composite
def any_histories(draw: st.DrawFn) -> History:
    one, other, third, client, second = draw(st.lists(names, min_size=5, max_size=5, unique=True))
    topology = Topology((third, one, other), (Edge(one, other, draw(st.integers(1, 9))), Edge(other, third)))
    return History(
        topology=topology,
        homes={client: other, second: one},
        steps=tuple(draw(st.lists(steps_of(client, topology), max_size=8))),
        strategy=draw(st.sampled_from(["asf", "gsf"])),
        seed=draw(integers),
        network=draw(st.dictionaries(st.sampled_from(["loss", "duplication", "reordering"]), parts)),
        resends=draw(st.booleans()),
    )


def typed(step: Step) -> str:
    """Tells 1 from 1.0 and true, which are equal to Python."""
    return repr(
        [(name, type(value)) for name, value in getattr(step, "attributes", getattr(step, "context", {})).items()]
    )


@examples(78, 1500)
@given(any_histories(), st.sampled_from([None, "lost", "tables"]))
def test_reading_gives_the_history_that_was_written(history: History, kind: str | None) -> None:
    file = StepFile(history, kind)  # type: ignore[arg-type]
    again = read(write(file, ["a comment", "of two\nlines"]))
    assert again == file
    assert list(map(typed, again.history.steps)) == list(map(typed, history.steps))
    assert list(again.history.homes) == list(history.homes)


@examples(50, 1000)
@given(histories())
def test_reading_gives_the_history_of_a_property_test(history: History) -> None:
    assert read(write(StepFile(history))).history == history


def test_reading_gives_the_histories_of_seeds() -> None:
    for seed in range(40):
        history = draw_history(seed, pauses=True)
        faults: tuple[Fault, ...] = draw_faults(history.topology, seed, count=3, seconds=9.0)
        with_times = History(topology=history.topology, homes=history.homes, steps=(*history.steps, *faults))
        for one in (history, with_times):
            assert read(write(StepFile(one))).history == one


def test_a_file_that_a_person_writes() -> None:
    text = """\
    # Two brokers, and what is said between them.
    brokers b1 b2
    link b1 b2 cost=2   # the only one

    client ann b1
    client "cut" b2
    network loss=0.1
    ann   advertise ad "a > 1" publisher_context=x,y
    "cut" subscribe s "a > 1" publishers="x > 0" durable=d
    ann publish a=2 b=-1.5 name="a b" "subscribers"=true subscribers="x = 1"
    ann context x=1
    cut b2 b1 one-way at=1.5
    lossy b1 b2 loss=1 reordering=0.5
    wait 0.7
    settle
    """
    file = read(text)
    assert file.expect is None
    assert file.history == History(
        topology=Topology(("b1", "b2"), (Edge("b1", "b2", 2),)),
        homes={"ann": "b1", "cut": "b2"},
        network={"loss": 0.1},
        steps=(
            Advertises("ann", "ad", "a > 1", ("x", "y")),
            Subscribes("cut", "s", "a > 1", "x > 0", None, "d"),
            Publishes("ann", {"a": 2, "b": -1.5, "name": "a b", "subscribers": True}, "x = 1"),
            SetsContext("ann", {"x": 1}),
            Cut(1.5, "b2", "b1", one_way=True),
            Lossy(0.0, "b1", "b2", 1.0, 0.0, 0.5),
            Waits(0.7),
            Settles(),
        ),
    )


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("fly b1", "'fly' is neither a client nor one of the steps wait, settle, cut"),
        ("c2 leave", "'c2' is neither a client nor one of the steps"),
        ('"cut" b1 b2', "'cut' is neither a client nor one of the steps"),
        ("c1", "'' is not a step of a client: subscribe, unsubscribe"),
        ("c1 fly", "'fly' is not a step of a client: subscribe, unsubscribe"),
        ("c1 subscribe", "id missing; the step is written: CLIENT subscribe ID [CONTENT] [publishers=...]"),
        ("cut b1", "other missing; the step is written: cut ONE OTHER [one-way] [at=...]"),
        ("slow b1 b2", "factor missing; the step is written: slow ONE OTHER factor=FACTOR [at=...]"),
        ("crash", "broker missing; the step is written: crash BROKER [at=...]"),
        ("crash b9", "there is no broker 'b9'"),
        ("c1 move b9", "there is no broker 'b9'"),
        ("cut b1 b3", "b1 and b3 are not linked"),
        ("cut b1 b2 b3", "b3 is too much; the step is written: cut ONE OTHER [one-way] [at=...]"),
        ("crash b1 at=1 at=2", "at is given twice"),
        ("crash b1 now=1", "there is no option 'now'"),
        ("crash b1,b2", "a word is needed here, not b1,b2"),
        ("wait soon", "seconds: 'soon' is not a number"),
        ('wait "1"', "seconds: '1' is not a number"),
        ("wait -1", "seconds: must be from 0 to 1000000000, not -1"),
        ("wait 1e300", "seconds: must be from 0 to 1000000000, not 1e300"),
        ("wait NaN", "seconds: 'NaN' is not a number"),
        ("lossy b1 b2 loss=1.5", "loss: must be from 0 to 1, not 1.5"),
        ("c1 publish a=x", "a: 'x' is not a number, true or false; a string is written in quotes"),
        ("c1 publish a=1 a=2", "a is given twice"),
        ('c1 subscribe ""', "an id is a string of 1 to"),
        ('c1 subscribe s durable=""', "an id is a string of 1 to"),
        ("c1 advertise a publisher_context=$x", "the name '$x' starts with '$'"),
        ("c1 publish a=1,2", "a word is needed here, not 1,2"),
        ("c1 publish $a=1", "the name '$a' starts with '$'"),
        ("c1 publish a=99999999999999999999", "does not fit into 64 bits"),
        ('c1 subscribe s "a >"', "content: "),
        ('c1 subscribe s publishers="a >"', "publishers: "),
        ('c1 subscribe s policy="no"', "policy: "),
        ('c1 subscribe s "a', 'cannot be read from here on: "a; a closing quote is missing'),
        ('c1 subscribe "\\q"', '"\\q" is not a string as in JSON'),
        ("client c2 b1\nsettle\nclient c3 b1", "'client' belongs before the first step"),
        ("expect trouble", "expect: 'trouble' is none of lost, undue"),
        ("expect lost\nexpect lost", "expect is given twice"),
        ("strategy best", f"strategy: 'best' is none of {', '.join(sorted(STRATEGIES))}"),
        ("seed x", "seed: 'x' is not an integer"),
        ("seed 1 2", "seed: one word is needed"),
        ("resends perhaps", "resends: 'perhaps' is none of yes, no"),
        ("network 1", "network: 1 is none of loss=NUMBER"),
        ("network loss=2", "loss: must be from 0 to 1, not 2"),
        ("network loss=0 loss=1", "network: loss is given twice"),
        ("brokers b1", "brokers is given twice"),
        ("link b1", "too few words; the line is written: link BROKER BROKER [cost=NUMBER]"),
        ("link b1 b9", "there is no broker 'b9'"),
        ("link b2 b1", "two brokers are linked once"),
        ("link b3 b3", "b3 cannot be linked to itself"),
        ("link b2 b3 cost=0", "costs 0: must be an int from 1 on"),
        ("link b2 b3 2", "2 is too much; only cost=NUMBER may follow"),
        ("client c2", "too few words; the line is written: client NAME BROKER"),
        ("client c2 b9", "there is no broker 'b9'"),
        ("client c1 b2", "the client c1 is given twice"),
        ("client b2 b1", "b2 is the name of a broker"),
        ("client c2 b1 b2", "b2 is too much"),
    ],
)
def test_a_mistake_is_named_by_its_line(line: str, message: str) -> None:
    with pytest.raises(InvalidValueError) as caught:
        read(HEADER + line, "test.steps")
    last = (HEADER + line).count(NEWLINE) + 1
    assert str(caught.value).startswith(f"test.steps:{last}: ")
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "test.steps:1: the line of the brokers is missing"),
        ("client c1 b1", "test.steps:1: the line of the brokers is missing"),
        ("\nsettle", "test.steps:2: the line of the brokers is missing"),
        ("brokers", "test.steps:1: brokers: at least one is needed"),
        ("brokers b1 b1", "test.steps:1: brokers: a name is given twice"),
    ],
)
def test_a_file_names_its_brokers_first(text: str, message: str) -> None:
    with pytest.raises(InvalidValueError) as caught:
        read(text, "test.steps")
    assert str(caught.value).startswith(message)
