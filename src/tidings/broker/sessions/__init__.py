"""Sessions of connected clients: requests, publications, inboxes, queries and quotas."""
