"""A proxy before unmodified brokers that answers where remote segments lie."""
