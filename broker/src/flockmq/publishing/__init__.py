"""Messages for which no connection waits: retained and delayed messages, wills."""
