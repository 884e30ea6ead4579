"""Sessions that outlive their connections and their nodes: at their home, and in Redis."""
