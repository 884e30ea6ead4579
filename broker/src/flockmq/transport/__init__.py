"""Client connections: sockets, TLS, WebSocket, the PROXY protocol, rate limits, and the reactor that reads them."""
