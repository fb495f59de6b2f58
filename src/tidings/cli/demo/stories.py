"""Scenes on a hub: the examples of the papers (fire, cars and cameras, traffic loops, supply chain, security zones),
and scenes about filters."""

import math
from typing import Any, NamedTuple

from rich.markup import escape

from tidings.filters import Filter, merge
from tidings.hub import Hub
from tidings.model.errors import FilterError, RefusedError, TidingsError
from tidings.model.notification import Notification
from tidings.model.schema import AttributeFilter, Schema
from tidings.model.values import Value
from tidings.policy import policies


class Scene(NamedTuple):
    """The result of a scene: a title, lines of text for the terminal, and facts for JSON."""

    title: str
    lines: list[str]  # with rich markup; text from elsewhere is escaped by `plain`
    facts: dict[str, Any]


def plain_scene(title: str, lines: list[str], facts: dict[str, Any]) -> Scene:
    """Return a scene whose lines have no markup."""
    return Scene(title, [plain(line) for line in lines], facts)


def plain(text: object) -> str:
    """Return the text with rich markup escaped."""
    return escape(str(text))


def dim(text: object) -> str:
    """Return the text in dim markup."""
    return f"[dim]{plain(text)}[/dim]"


def green(text: object) -> str:
    """Return the text in green markup."""
    return f"[green]{plain(text)}[/green]"


def red(text: object) -> str:
    """Return the text in red markup."""
    return f"[red]{plain(text)}[/red]"


def fire() -> Scene:
    """Fire monitoring (fifth paper, Table 2): publishers and subscribers select each other by position."""
    hub = Hub()
    near = "floor = this.floor and x between this.x - 30 and this.x + 30 and y between this.y - 30 and this.y + 30"
    sprinklers, signals = {}, {}
    for floor in (1, 2):
        for x in (0.0, 40.0, 80.0, 120.0):
            sprinkler, signal = hub.client(f"sprinkler {floor}/{x:.0f}"), hub.client(f"signal {floor}/{x:.0f}")
            sprinkler.set_context(floor=floor, x=x, y=10.0)
            signal.set_context(floor=floor, x=x, y=0.0)
            sprinklers[sprinkler.name] = sprinkler.subscribe("msgType = 'Alert'", publishers=near)
            signals[signal.name] = signal.subscribe("msgType like 'Evacuate%'")
    planner = hub.client("planner")

    def plan(alert: Notification) -> None:
        planner.set_context(fire=alert.event.context["x"])
        planner.publish({"msgType": "EvacuateL"}, subscribers="x < this.fire")
        planner.publish({"msgType": "EvacuateR"}, subscribers="x > this.fire")

    planner.subscribe("msgType = 'Alert'", callback=plan)
    detector = hub.client("detector 2/60")
    detector.set_context(floor=2, x=60.0, y=12.0)
    detector.publish({"msgType": "Alert"})
    open_sprinklers = [name for name, inbox in sprinklers.items() if inbox.take()]
    arrows = {name: [str(note.attributes["msgType"])[-1] for note in inbox.take()] for name, inbox in signals.items()}
    names = green(", ".join(open_sprinklers))
    lines = [
        f"smoke at the detector on floor 2, x = 60: {names} of {len(sprinklers)} sprinklers open",
        dim(f"each subscribed once, to Alert, from publishers where {near}"),
    ]
    pointing = {"L": "<", "R": ">"}
    text = "  ".join(
        f"{name.split()[1]} {''.join(pointing[sign] for sign in directions)}" for name, directions in arrows.items()
    )
    lines.append(f"the planner, told of it, published two plans, for signals west and east of the fire: {plain(text)}")
    facts = {
        "sprinklers": open_sprinklers,
        "signals": {name: "".join(directions) for name, directions in arrows.items()},
    }
    return Scene("Fire: who is near, and who is east of it", lines, {"fire": facts})


def cars_and_cameras() -> Scene:
    """Cars and cameras (second paper): contexts change all the time, subscriptions never change."""
    hub = Hub()
    camera = hub.client("cam-1")
    camera.set_context(x=0.0, y=0.0)
    camera.advertise("msg = 'accident'", publisher_context=["x", "y"], subscriber_context=["role"])
    cars = [hub.client(f"car-{number}") for number in range(5)]
    inboxes = [
        car.subscribe("msg = 'accident' and severity >= 2", publishers="distance(x, y, this.x, this.y) <= 20")
        for car in cars
    ]
    gps = hub.client("gps")  # a GPS process sets the contexts of the cars
    lines, notifications, changes = [], 0, 0
    for car in cars:
        car.let_set_context(gps)
    for hour in range(5):
        for number, car in enumerate(cars):
            gps.set_context(_car(number, hour), of=car.name)
            changes += 1
        camera.publish({"msg": "accident", "severity": 3}, subscribers="role = 'driver'")
        notified = [note.subscriber for inbox in inboxes for note in inbox.take()]
        notifications += len(notified)
        places = "  ".join(f"{math.hypot(float(car.context['x']), float(car.context['y'])):3.0f} km" for car in cars)
        names = green(", ".join(notified)) if notified else dim("nobody")
        lines.append(f"hour {hour}: cars at {places}   told: {names}")
    lines.append(
        dim(
            f"{changes} changes of context, one array write each; re-subscribing would have been "
            f"{2 * changes} operations. In car-1 sits a passenger; the camera asks for drivers."
        )
    )
    facts = {"accidents": 5, "notifications": notifications, "context_changes": changes}
    return Scene("Cars and cameras: contexts move, subscriptions stay", lines, facts)


def _car(number: int, hour: int) -> dict[str, Value]:
    distance = abs(60.0 - 20.0 * hour + 10.0 * number)
    return {"x": distance * 0.6, "y": distance * 0.8, "role": "passenger" if number == 1 else "driver"}


def traffic_loops() -> Scene:
    """Traffic loops (fourth paper): attribute filters alone select sensors; a new attribute changes no subscription."""
    hub = Hub()
    loop = Schema("Loop", {"li": int, "ts": int, "lo": str, "vc": str})
    hub.schema(loop)
    monitor = hub.client("velocity monitor").subscribe(subject="Loop", structure=AttributeFilter(loop, {"li", "ts"}))
    collector = hub.client("statistics").subscribe(subject="Loop", structure=AttributeFilter(loop, {"ts", "lo", "vc"}))
    newer = loop.extend({"cf": float})
    hub.schema(newer)
    sensors: dict[str, dict[str, Value]] = {
        "first loop of a lane": {"li": 3, "ts": 100, "lo": "Main Street", "vc": "car"},
        "second loop": {"li": 3, "ts": 101},
        "new loop, version 2": {"li": 3, "ts": 102, "lo": "Main Street", "vc": "car", "cf": 0.9},
    }
    lines, facts = [], {}
    for sensor, attributes in sensors.items():
        hub.client(sensor).publish(attributes, subject="Loop")
        notified = [inbox.subscriber for inbox in (monitor, collector) if inbox.take()]
        facts[sensor] = notified
        lines.append(f"{sensor:<21} vector {newer.bits_of(attributes):05b}  ->  {green(', '.join(notified))}")
    try:
        hub.client("third loop").publish({"li": 3, "speed": 50}, subject="Loop")
    except RefusedError as error:
        lines.append(f"{'third loop':<21} {red('refused')}: {plain(error.reason)}")
    return Scene("Traffic loops: structure as bits", lines, {"loops": facts})


def supply_chain() -> Scene:
    """Inventory reports (first paper, section 3.3): policies of two subscriptions of one client, composed for each
    event."""
    hub = Hub()
    manager, shop = hub.client("management"), hub.client("warehouse")
    high = manager.subscribe("class = 'report' and d1 > 50", policy=policies.prev_hop(), notify="client")
    low = manager.subscribe("class = 'report' and d1 < 80", policy=policies.remove("d2", "d3"), notify="client")
    auditor = hub.client("auditor").subscribe("class = 'report'", policy=policies.to_xml())
    lines, facts = [], {}
    for d1 in (90, 20, 60):
        shop.publish({"class": "report", "d1": d1, "d2": 7, "d3": 8})
        note = next(iter([*high.take(), *low.take()]))
        attributes = {name: value for name, value in note.attributes.items() if name != "class"}
        facts[str(d1)] = attributes
        lines.append(
            f"d1 = {d1}: management sees {green(', '.join(f'{name} {value}' for name, value in attributes.items()))}"
        )
    document = (auditor.take()[0].payload or b"").decode().splitlines()
    lines.append(f"the auditor gets the same reports as XML: {plain(document[0])} ... {plain(document[2].strip())} ...")
    return Scene("Supply chain: a subscriber says in which shape", lines, {"reports": facts})


def security_zones() -> Scene:
    """Security zones (first paper, Fig. 16): trust groups, a refused subscription, and an explanation."""
    groups = {
        "vault": {"Restricted", "Staff"},
        "web": {"Controlled", "Staff"},
        "cafe": {"Staff"},
        "stranger": set[str](),
    }
    hub = Hub(trust=lambda party, group: group in groups.get(party, ()), observers={"watchman"}, govern={"bank"})
    watchman = hub.client("watchman").subscribe("class = 'UnauthorizedSubscribe'")
    zones = policies.security_zones(
        restricted="Restricted", controlled="Controlled", hidden=["card"], subscribers="Staff"
    )
    bank = hub.client("bank")
    bank.advertise("class = 'payment'", policy=zones)
    inboxes, lines, facts = {}, [], dict[str, Any]()
    for name in groups:
        try:
            inboxes[name] = hub.client(name).subscribe("class = 'payment'")
        except RefusedError:
            lines.append(f"{name:<9} {red('may not even subscribe')}")
    receipt = bank.publish({"class": "payment", "amount": 12, "card": "4711"})
    for name, inbox in inboxes.items():
        notes = inbox.take()
        facts[name] = [sorted(note.attributes) for note in notes]
        visible = green(", ".join(notes[0].attributes)) if notes else red("nothing")
        lines.append(f"{name:<9} in {', '.join(sorted(groups[name] - {'Staff'})) or 'no zone':<11} sees {visible}")
    warnings = watchman.take()
    warning = warnings[0].attributes
    lines.append(f"the watchman was told: {plain(warning['class'])}, {plain(warning['message'])}")
    why = hub.explain(receipt, subscription=inboxes["cafe"].id)
    lines.append(f"why the cafe got nothing: {dim(why.reason)}")
    facts["refused"] = len(warnings)
    return Scene("Zones: who may see what", lines, {"zones": facts})


def languages() -> Scene:
    """Parse six filters, one in each notation, and show their canonical forms."""
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
    return plain_scene("Six notations become one filter", lines, {"filters": parsed})


def mistakes() -> Scene:
    """Show the error message for a misspelt filter, with position and suggestion."""
    try:
        Filter.parse("price betwen 10 and 20")
    except FilterError as error:
        return plain_scene("A mistake says where it is", str(error).splitlines(), {"mistake": error.message})
    raise TidingsError("the demo's mistake was accepted")


def covering() -> Scene:
    """Compare pairs of filters by covering and overlap, and merge many filters into few."""
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
    return plain_scene(
        "Covering and merging",
        lines,
        {"relations": facts, "merged": [len(squares), len(merged)]},
    )
