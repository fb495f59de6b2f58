"""Links to other brokers: dialing, resending missed publications, handing clients over."""
