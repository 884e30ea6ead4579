"""Redis as a node uses it: URLs, connections and links, the embedded server, and memory use."""
