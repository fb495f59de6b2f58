"""Lives of hubs: what clients and an operator may do, at random, and what came of it."""

import contextlib
import random
from pathlib import Path
from typing import Any, NamedTuple

import tidings as td
from tidings.journal import JournalOptions

NAME = "h"
CLIENTS = ["car", "bus", "cam"]
POLICIES = [
    *(None, None, str(td.policies.trim()), str(td.policies.remove("x")), str(td.policies.keep_only("n", "y"))),
    *(str(td.policies.to_json()), "PolicyStatement { On(Publication) { If {StrictMatch()} Then {BlockMessage()} } }"),
    'PolicyStatement { On(Publication) { If {} Then {Publish("[class,Seen],[n,1]")} } }',
]
Note = tuple[str, str, str, bytes | None]  # event, subscription, attributes, payload


class Life(NamedTuple):
    notes: set[Note]
    told: dict[tuple[str, str], tuple[bool, str, str, tuple[str, ...]]]  # why, by event and subscription


def written(attributes: Any) -> str:
    return repr(sorted(attributes.items()))


def lived(folder: Path, seed: int, *, governed: bool = True, steps: int = 140) -> Life:
    """What a hub delivered, and what it said of each event and each subscription of that moment."""
    chance, life = random.Random(seed), Life(set(), {})

    def got(note: td.Notification) -> None:
        for name in note.subscriptions or (note.subscription,):
            life.notes.add((str(note.event.id), name, written(note.attributes), note.payload))

    with td.Hub(folder, name=NAME, options=JournalOptions(roll_records=40)) as hub:
        for _ in range(steps):
            with contextlib.suppress(td.RefusedError, td.InvalidValueError):
                _step(hub, chance, got, life, governed=governed)
    return life


def _step(hub: td.Hub, chance: random.Random, got: Any, life: Life, *, governed: bool) -> None:
    client = hub.client(chance.choice(CLIENTS))
    policy = chance.choice(POLICIES) if governed else None
    about = f"{chance.choice('abc')}-{client.name}"
    content = chance.choice(["", f"n > {chance.randrange(5)}", "n >= 0 and x IS NOT NULL", "y = 'a'", "class = 'Seen'"])
    match chance.randrange(16):
        case 0 | 1 | 2 | 3:
            client.subscribe(
                content,
                id=about,
                policy=policy,
                publishers=chance.choice([None, None, "z > this.z"]),
                notify=chance.choice(["subscription", "subscription", "client"]),
                callback=got,
            )
        case 4:
            client.unsubscribe(about)
        case 5:
            client.advertise(chance.choice(["", "n > 1"]), id=f"ad-{about}", policy=policy)
        case 6:
            client.unadvertise(f"ad-{about}")
        case 7 | 8:
            client.set_context(z=chance.randrange(4))
        case 9 if governed:
            chance.choice([hub, client]).set_policy(chance.choice([about, f"ad-{about}"]), policy)  # type: ignore[attr-defined]
        case 10 if chance.random() < 0.3:
            client.close()
        case 11 if governed and chance.random() < 0.3:
            hub.subscribe(content, id="hubs", policy=policy, callback=got)
        case _:
            said = {"n": chance.randrange(6), "x": chance.choice([1, 1.5]), "y": chance.choice(["a", "b"])}
            kept = {name: said[name] for name in chance.sample(sorted(said), chance.randrange(1, 4))}
            receipt = client.publish(
                kept,
                payload=chance.choice([b"", b"jpg"]),
                subscribers=chance.choice([None, None, "z < 2"]),
                policy=policy if chance.random() < 0.2 else None,
            )
            for held in hub.tables().subscriptions:
                why = hub.explain(receipt, subscription=held.id)
                life.told[str(receipt.event.id), held.id] = why.delivered, why.step, why.reason, why.rules
