"""Sessions that outlive their connections and their nodes: at their owner, and in Redis."""
