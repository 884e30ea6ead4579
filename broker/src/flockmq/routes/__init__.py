"""What a node writes into the log of its clients' filters, and what it reads there of others'."""
