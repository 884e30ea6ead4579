"""Client connections: sockets, TLS, WebSocket, the PROXY protocol, rates, and the turns in which they are read."""
