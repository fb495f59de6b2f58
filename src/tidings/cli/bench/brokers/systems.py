"""All that are measured, by the short names that they are chosen by."""

from tidings.cli.bench.brokers.activemq import ActiveMq
from tidings.cli.bench.brokers.mosquitto import Mosquitto
from tidings.cli.bench.brokers.own import Own
from tidings.cli.bench.brokers.own_speech import OwnSpoken
from tidings.cli.bench.brokers.rabbitmq import RabbitMq
from tidings.cli.bench.brokers.system import System
from tidings.protocol.publications import Safety

SYSTEMS: dict[str, System] = {
    "tidings": OwnSpoken(Safety.ACCEPTED),
    "tidings-journaled": OwnSpoken(Safety.JOURNALED),
    "tidings-settled": OwnSpoken(Safety.SETTLED),
    "tidings-client": Own("accepted"),
    "tidings-client-journaled": Own("journaled"),
    "mosquitto": Mosquitto(quality=0),
    "mosquitto-1": Mosquitto(quality=1),
    "rabbitmq": RabbitMq(confirmed=False),
    "rabbitmq-confirmed": RabbitMq(confirmed=True),
    "activemq": ActiveMq(durable=False),
    "activemq-durable": ActiveMq(durable=True),
}
