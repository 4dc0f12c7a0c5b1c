"""The Kafka protocol, as far as a reader needs it: messages, connections and the rules of a client."""
