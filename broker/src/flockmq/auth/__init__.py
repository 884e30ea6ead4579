"""Who may connect, and do what."""
