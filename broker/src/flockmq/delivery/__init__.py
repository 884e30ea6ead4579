"""Messages between nodes: to another node's clients, and to the slots of sessions that last."""
