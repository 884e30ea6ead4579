"""What a node counts, and how that is shown to whoever scrapes it."""
