"""What nodes and the homes of client ids ask and tell one another: CONNECT, SUBSCRIBE, the end."""
