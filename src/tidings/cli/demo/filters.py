"""Filters on their own: six notations, a mistake, and who covers whom."""

from tidings.cli.demo.scene import Scene, plainly
from tidings.filters import Filter, merge
from tidings.model.errors import FilterError, TidingsError


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
