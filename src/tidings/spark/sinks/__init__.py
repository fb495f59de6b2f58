"""Sinks for `foreachBatch`: publish the rows of a stream into a hub, or through a live broker."""
