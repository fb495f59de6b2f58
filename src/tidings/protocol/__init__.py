"""What goes over the wire between clients and brokers, and between brokers: frames and their bytes, without sockets."""
