"""Messages from this node to other nodes, and to the owners of durable sessions."""
