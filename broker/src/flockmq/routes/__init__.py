"""What a node writes to the log about its clients' filters, and what it reads there about other nodes' filters."""
