"""Services: key management centres and discovery nodes, as clients of the overlay."""
