"""A day of very many events, and what is true of it."""
