"""What a broker knows: filters with their rules, contexts, and to which neighbours filters were sent."""
