"""The broker: the engine with sockets, sessions, a journal and links to other brokers."""
