"""How a client reacts to brokers' answers: small state machines without sockets or clocks."""
