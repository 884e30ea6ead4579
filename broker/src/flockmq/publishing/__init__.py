"""What is published without a connection that waits: retained and delayed messages, wills."""
