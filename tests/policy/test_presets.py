"""Ready-made policies: each is what its text parses to, may stand where it is meant to, and holds what it promises."""

from collections.abc import Callable

import pytest

from tests.policy.paper import FIG_4, FIG_6, FIG_7, FIG_8, FIG_16, FIG_22
from tidings import Policy, PolicyError, policies
from tidings.policy.lint import findings
from tidings.policy.placement import PolicyPlace, check_placement


def egress(actions: str) -> str:
    return f"PolicyStatement {{ On(Forward, Publication) {{ @broker: Egress\nIf {{}} Then {{{actions}}} }} }}"


def firewall(on: str, condition: str) -> str:
    return (
        f"PolicyStatement {{ On(Forward, {on}) {{ @broker: Ingress, Routing\n"
        f"If {{{condition}}} Then {{BlockMessage()}} }} }}"
    )


def scope(condition: str) -> str:
    return (
        "PolicyStatement { On(Forward, Advertisement) { @broker: Ingress, Routing\n"
        f"If {{{condition}}} Then {{}} Elseif {{}} Then {{BlockMessage()}} }} }}"
    )


# Fig. 16, mended: what is reported is blocked, and not stored either.
ZONES = FIG_16.replace(
    """Then {Publish("[class,UnauthorizedSubscribe],

[message,$Message]")}""",
    """Then {Publish("[class,UnauthorizedSubscribe],

[message,$Message]"), BlockMessage()}""",
).replace(
    "On(Forward,Subscription) {",
    """On(Insert,Subscription) {
@broker: Ingress
If {AuthenticateSender(AuthorizedSubscribers)} Then {} Elseif {} Then {UninsertMessage()}
}
On(Forward,Subscription) {""",
)
SUBSCRIPTION, ADVERTISEMENT = PolicyPlace.ASSOCIATED_WITH_SUBSCRIPTION, PolicyPlace.ATTACHED_TO_ADVERTISEMENT
MADE: dict[str, tuple[Callable[[], Policy], str, PolicyPlace]] = {
    "trim": (policies.trim, FIG_4, SUBSCRIPTION),
    "trim, as XML": (lambda: policies.trim(convert="xml"), egress("TrimAttributes(), ToXML()"), SUBSCRIPTION),
    "remove": (lambda: policies.remove("a", "b c"), egress("RemoveAttributes(a, 'b c')"), SUBSCRIPTION),
    "remove a list": (lambda: policies.remove(["a", "b"]), egress("RemoveAttributes(a, b)"), SUBSCRIPTION),
    "keep_only": (
        lambda: policies.keep_only("a", convert="json"),
        egress("KeepOnlyAttributes(a), ToJSON()"),
        SUBSCRIPTION,
    ),
    "prev_hop": (policies.prev_hop, egress("AppendPrevHop()"), SUBSCRIPTION),
    "to_xml": (policies.to_xml, egress("ToXML()"), SUBSCRIPTION),
    "to_json": (policies.to_json, egress("ToJSON()"), SUBSCRIPTION),
    "trace": (policies.trace, FIG_6, PolicyPlace.ATTACHED_TO_PUBLICATION),
    "trace, handed down": (
        lambda: policies.trace(host=False, load=False, attach="Always"),
        "PolicyStatement { On(Publication) { @attach: Always If {} Then {AugmentProcessingTime()} } }",
        ADVERTISEMENT,
    ),
    "shed_load": (policies.shed_load, FIG_7, PolicyPlace.ASSOCIATED_WITH_ADVERTISEMENT),
    "flood": (policies.flood, FIG_8, ADVERTISEMENT),
    "authenticated": (
        lambda: policies.authenticated("TrustGroup1", "TrustGroup2"),
        scope("AuthenticateReceiver(TrustGroup1) || AuthenticateReceiver(TrustGroup2)"),
        ADVERTISEMENT,
    ),
    "authenticated, every": (
        lambda: policies.authenticated(["TrustGroup1", "TrustGroup2"], every=True),
        scope("AuthenticateReceiver(TrustGroup1) && AuthenticateReceiver(TrustGroup2)"),
        ADVERTISEMENT,
    ),
    "security_zones": (
        lambda: policies.security_zones(
            restricted="Restricted",
            controlled="Controlled",
            hidden=["a", "m", "n"],
            subscribers="AuthorizedSubscribers",
        ),
        ZONES,
        ADVERTISEMENT,
    ),
    "firewall": (policies.firewall, firewall("Publication", "StrictMatch()"), PolicyPlace.BROKER_SUBSCRIPTION),
    "firewall, not strict": (lambda: policies.firewall(strict=False), firewall("Publication", ""), SUBSCRIPTION),
    "firewall, subscriptions": (
        lambda: policies.firewall(subscriptions=True),
        firewall("Subscription", "StrictMatch()"),
        PolicyPlace.BROKER_ADVERTISEMENT,
    ),
}


@pytest.mark.parametrize("name", MADE)
def test_it_is_what_its_text_parses_to(name: str) -> None:
    make, text, where = MADE[name]
    assert make() == Policy.parse(text)
    assert Policy.parse(str(make())) == make()
    assert Policy.from_xml(make().to_xml()) == make()
    assert check_placement(make(), where) == []
    assert findings(make()) == []


def test_the_firewall_differs_from_fig_22_in_one_point() -> None:
    assert str(policies.firewall()) == str(Policy.parse(FIG_22)).replace("Routing", "Ingress, Routing")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: policies.remove(), "RemoveAttributes needs an argument"),
        (lambda: policies.remove("$x"), "such names are the system's"),
        (lambda: policies.keep_only(""), "a name must not be empty"),
        (lambda: policies.remove("a\0"), "a control character"),
        (lambda: policies.trim(convert="yaml"), "convert is 'xml' or 'json', not 'yaml'"),
        (lambda: policies.trace(host=False, load=False, time=False), "trace() has nothing to tell"),
        (lambda: policies.trace(attach="Sometimes"), "attach is one of Never, Always, KeepExisting, IfYield"),
        (lambda: policies.authenticated(), "authenticated() needs a trust group"),
        (lambda: policies.shed_load(size=float("nan")), "not a finite number"),
        (lambda: policies.authenticated(5), "a word or a string"),  # type: ignore[arg-type]
    ],
)
def test_what_cannot_be_made(make: Callable[[], Policy], message: str) -> None:
    with pytest.raises(PolicyError) as caught:
        make()
    assert message in caught.value.message
