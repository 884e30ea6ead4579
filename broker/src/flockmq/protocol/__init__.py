"""What one client says and hears: CONNECT, publishes in their order, SUBSCRIBE, acknowledgements. Pure."""
