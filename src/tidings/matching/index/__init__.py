"""The index of subscriptions and its data structures."""
