"""Operation of a broker: health, metrics page, heartbeat, reload and journal maintenance."""
