"""Filters on their own: six notations, a mistake, who covers whom, and Spark SQL as a judge."""

from random import Random

from tidings.cli.demo.scene import Scene, plainly
from tidings.cli.terminal import err
from tidings.filters import Filter, merge
from tidings.matching.reference import Scope, truth
from tidings.model.errors import FilterError, TidingsError
from tidings.model.values import Attributes, Value


def languages() -> Scene:
    """Six notations, one filter."""
    written = [
        ("sql", "class = 'report' and d1 > 10"),
        ("topic", "/Sports/*"),
        ("tags", "Sports=NBA,Team=*"),
        ("regex", "goal.*(Beckham|Zidane)"),
        ("xpath", "/order/item[@price>10]"),
        ("padres", "[class,eq,'stock'],[price,>,10]"),
    ]
    parsed = {notation: str(Filter.parse(text, notation)) for notation, text in written}
    lines = [f"{notation:<7} {text:<34} ->  {parsed[notation]}" for notation, text in written]
    return plainly("Six notations become one filter", lines, {"filters": parsed})


def mistakes() -> Scene:
    """A mistake says where it is, and what was probably meant."""
    try:
        Filter.parse("price betwen 10 and 20")
    except FilterError as error:
        return plainly("A mistake says where it is", str(error).splitlines(), {"mistake": error.message})
    raise TidingsError("the demo's mistake was accepted")


def covering() -> Scene:
    """Who needs whose events anyway, and how few filters say the same as many."""
    pairs = [
        ("price > 10", "price between 20 and 30 and class = 'stock'"),
        ("name like 'tid%'", "name like '%ings'"),
        ("n > 9007199254740992", "n < 9007199254740993"),
        ("class = 'a' or class = 'b'", "class in ('b', 'a')"),
    ]
    facts = {f"{one} / {other}": Filter.parse(one).relation(Filter.parse(other)).value for one, other in pairs}
    lines = [f"{one:<28} {facts[f'{one} / {other}']:<9} {other}" for one, other in pairs]
    squares = [
        Filter.parse(f"x >= {i} and x < {i + 1} and y >= {j} and y < {j + 1}") for i in range(10) for j in range(10)
    ]
    merged = merge(squares)
    lines.append(f"{len(squares)} squares of a map merge into {len(merged)}: {merged[0]}")
    return plainly(
        "Covering and merging",
        lines,
        {"relations": facts, "merged": [len(squares), len(merged)]},
    )


def spark_agrees() -> Scene:
    """The canonical text is Spark SQL too: the same events, asked of Spark."""
    from tidings.spark import session

    random = Random(7)  # noqa: S311 - a workload, not a secret
    events = [_reading(random) for _ in range(20_000)]
    wanted = Filter.parse("class in ('a', 'b') and (n > 500 or note like '%x%') and not d between 0.25 and 0.5")
    ours = sum(truth(wanted.expression, Scope(Attributes.of(event))) is True for event in events)
    err.print("starting Spark ...", style="dim")
    spark = session("tidings demo", master="local[2]", **{"spark.sql.shuffle.partitions": 2})
    try:
        rows = [tuple(event.get(name) for name in ("class", "n", "d", "note")) for event in events]
        frame = spark.createDataFrame(rows, "class string, n bigint, d double, note string")
        theirs = frame.filter(str(wanted)).count()
    finally:
        spark.stop()
    if ours != theirs:
        raise TidingsError(f"Tidings finds {ours} events and Spark {theirs}: please report this")
    lines = [str(wanted), f"of {len(events):,} events, Tidings finds {ours:,} and Spark SQL finds {theirs:,}"]
    return plainly(
        "Spark SQL reads the same filter",
        lines,
        {"events": len(events), "tidings": ours, "spark": theirs},
    )


def _reading(random: Random) -> dict[str, Value]:
    everything: dict[str, Value] = {
        "class": random.choice("abc"),
        "n": random.randrange(1000),
        "d": random.random(),
        "note": "".join(random.choices("wxyz", k=3)),
    }
    return {name: value for name, value in everything.items() if random.random() < 0.9}
