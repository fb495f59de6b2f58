"""Equality: `!=` is the negation of `==`, and equal values have the same hash, in every class that defines equality."""

import importlib
import pkgutil
from collections.abc import Callable, Iterator
from types import FunctionType
from typing import Any

import pytest

import tidings
from tests.client.kmc import entity
from tidings.filters import ContextFilter, Filter
from tidings.model import filter as values
from tidings.model.expression import Constant
from tidings.model.schema import AttributeFilter, Schema
from tidings.model.values import Attributes, Context
from tidings.security.ca.certificates import Certificate


def classes() -> Iterator[type]:
    """All classes of the package."""
    for module in pkgutil.walk_packages(tidings.__path__, "tidings."):
        if not module.name.endswith("__main__"):
            for found in vars(importlib.import_module(module.name)).values():
                if isinstance(found, type) and found.__module__ == module.name:
                    yield found


def definition(of: type, method: str) -> Any:
    """The class from which `of` has the method, and the method itself."""
    return next((owner, vars(owner)[method]) for owner in of.__mro__ if method in vars(owner))


def with_own_equality() -> dict[str, type]:
    """The classes whose `==` is written in this package, by themselves or by a base."""
    found = set(classes())
    return {f"{one.__module__}.{one.__qualname__}": one for one in found if _is_own(definition(one, "__eq__"))}


def _is_own(defined: tuple[type, Any]) -> bool:
    owner, method = defined
    return isinstance(method, FunctionType) and owner.__module__.startswith("tidings")


OWN = with_own_equality()


@pytest.mark.parametrize("name", sorted(OWN))
def test_who_writes_equality_writes_inequality_and_hash_that_fit(name: str) -> None:
    """A msgspec Struct has a `!=` of its own, which does not ask an `__eq__` that a class writes."""
    owner, _ = definition(OWN[name], "__eq__")
    unequal, _ = definition(OWN[name], "__ne__")
    assert unequal is object or issubclass(unequal, owner), f"{owner.__name__} defines __eq__ without __ne__"
    hashed, method = definition(OWN[name], "__hash__")
    assert method is None or issubclass(hashed, owner), f"{owner.__name__} defines __eq__ without __hash__"


LOOP = Schema("Loop", {"a": int})
ANN, BOB = entity("ann").certificate, entity("bob").certificate
# Of each class with an equality of its own: makes equal values, and values that differ from these.
EXAMPLES: dict[type, tuple[Callable[[], Any], Callable[[], Any]]] = {
    values.FilterValue: (lambda: values.FilterValue(Constant(True)), lambda: values.FilterValue(Constant(False))),
    values.ContextFilterValue: (
        lambda: values.ContextFilterValue(Constant(True)),
        lambda: values.ContextFilterValue(Constant(False)),
    ),
    Filter: (lambda: Filter.parse("a = 1"), lambda: Filter.parse("a = 2")),
    ContextFilter: (lambda: ContextFilter.parse("a = 1"), lambda: ContextFilter.parse("a = this.a")),
    Constant: (lambda: Constant(1), lambda: Constant(1.0)),
    Attributes: (lambda: Attributes.of({"a": 1}), lambda: Attributes.of({"a": True})),
    Context: (lambda: Context.of({"a": 1}), lambda: Context.of({"a": 1.0})),
    Schema: (lambda: Schema("Loop", {"a": int}), lambda: Schema("Loop", {"a": float})),
    AttributeFilter: (lambda: AttributeFilter(LOOP, names={"a"}), lambda: AttributeFilter(LOOP, absent={"a"})),
    Certificate: (lambda: Certificate.read(ANN.der), lambda: BOB),
}


def test_every_class_with_an_equality_of_its_own_has_an_example() -> None:
    abstract = {"tidings.model.filter._Predicate", "tidings.model.values.Values"}
    assert {one for name, one in OWN.items() if name not in abstract} == set(EXAMPLES)


@pytest.mark.parametrize("kind", EXAMPLES, ids=lambda kind: f"{kind.__module__}.{kind.__name__}")
def test_unequal_is_the_negation_of_equal(kind: type) -> None:
    same, other = EXAMPLES[kind]
    assert same() == same()
    assert not same() != same()  # noqa: SIM202 - the operator is what is tested
    assert hash(same()) == hash(same())
    assert same() != other()
    assert not same() == other()  # noqa: SIM201
    for stranger in (None, 1, "a = 1", object()):
        assert same() != stranger
        assert not same() == stranger  # noqa: SIM201
