"""Brokers beside each other on one workload: publisher, broker and subscriber are processes of their own, on loopback.

They are spoken to in their own protocols by clients that know nothing else: what is measured is the broker, not the
library of its client. Ours is measured with its client, too.
"""
