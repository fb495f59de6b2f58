"""Services that are clients of the overlay: key management centres, discovery nodes, and authorities in a folder."""
