"""Brokers beside each other on one workload: publisher, broker and subscriber are processes of their own, on loopback.

All but ours are spoken to in their own protocols by a client that knows nothing else: what is measured is the broker,
not the library of its client.
"""
