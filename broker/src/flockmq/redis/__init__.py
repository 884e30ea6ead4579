"""Redis as a node reaches it: where it is, connections and links, the embedded one, how full its memory is."""
