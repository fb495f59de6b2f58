"""Topic discovery nodes: signed discovery records, who may find them, and queries."""
