"""What a client does when a broker says something: small machines fed with answers, without sockets or clocks."""
