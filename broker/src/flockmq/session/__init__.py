"""A session as its connection's node has it: whole, or the near end of one that its owner has. Pure."""
