"""The systems to measure, by the names that `tidings bench brokers --system` takes."""

from benchmarks.brokers.activemq import ActiveMq
from benchmarks.brokers.mosquitto import Mosquitto
from benchmarks.brokers.rabbitmq import RabbitMq
from benchmarks.brokers.system import System
from benchmarks.brokers.tidings import TidingsSystem
from benchmarks.brokers.tidings_protocol import TidingsProtocolSystem
from tidings.protocol.publications import Safety

SYSTEMS: dict[str, System] = {
    "tidings": TidingsProtocolSystem(Safety.ACCEPTED),
    "tidings-journaled": TidingsProtocolSystem(Safety.JOURNALED),
    "tidings-settled": TidingsProtocolSystem(Safety.SETTLED),
    "tidings-client": TidingsSystem("accepted"),
    "tidings-client-journaled": TidingsSystem("journaled"),
    "mosquitto": Mosquitto(qos=0),
    "mosquitto-1": Mosquitto(qos=1),
    "rabbitmq": RabbitMq(confirmed=False),
    "rabbitmq-confirmed": RabbitMq(confirmed=True),
    "activemq": ActiveMq(durable=False),
    "activemq-durable": ActiveMq(durable=True),
}
