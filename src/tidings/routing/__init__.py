"""Which neighbour next: where advertisements, subscriptions and publications go in an overlay."""
