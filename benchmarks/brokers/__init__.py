"""Compare brokers of several products on one workload, with broker, publisher and subscriber as processes on loopback.

The clients implement only the protocol of each broker, so that the broker is measured and not a client library. Tidings
is also measured with its own client.
"""
