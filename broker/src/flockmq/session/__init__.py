"""A clean session, and the session proxy of a durable one: what a connection's node has of a session. No I/O."""
