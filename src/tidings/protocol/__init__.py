"""The wire protocol between clients and brokers, and between brokers: frames and messages as bytes, without sockets."""
