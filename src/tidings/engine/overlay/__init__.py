"""The broker as a member of an overlay: links, convergence, deferred messages, settlement and redelivery."""
