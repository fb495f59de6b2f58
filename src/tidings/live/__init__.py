"""Real brokers: the engine with sockets, a journal and links to other brokers."""
