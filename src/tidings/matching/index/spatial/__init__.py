"""Spatial matching: subscriptions that match only events of publishers nearby, in groups with a grid each."""
