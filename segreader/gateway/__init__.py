"""A proxy in front of unmodified brokers that returns the locations of remote segments."""
