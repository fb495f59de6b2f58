"""Acyclic subscription forwarding (ASF), the first baseline of paper 004, section 4: subscriptions flood an acyclic
overlay, with covering, and events go back along the paths that they came.

Contexts are encoded as the paper's Table 1 does: a subscriber's stands in its subscriptions, which are sent anew when
it changes; a publisher's travels with its events. The filter of a publisher is applied at the last broker only.
"""

from tidings.routing.strategy import Around, Placed, Strategy, along


class AcyclicForwarding(Strategy):
    name = "asf"
    covers = True
    binds = True

    def toward(self, around: Around, one: Placed) -> dict[str, bool]:
        return along(around.topology.shared.neighbours(around.name), one)
