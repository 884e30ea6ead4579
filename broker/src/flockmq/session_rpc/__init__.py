"""What nodes and the owners of client ids ask and tell one another: CONNECT, SUBSCRIBE, the end."""
