"""Durable sessions at their owner: in its memory and in Redis."""
