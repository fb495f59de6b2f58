"""Brokers as processes: the engine with sockets, a journal, and what an operator needs around it."""
