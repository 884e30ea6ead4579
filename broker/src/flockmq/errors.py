"""Errors that a user can mend. The command line shows each as one line and leaves with its exit code."""

from __future__ import annotations


class UserError(Exception):
    """What is wrong, where, and how to mend it, in one line. Anything else that escapes is a defect."""

    exit_code: int = 1


class ConfigError(UserError):
    """A configuration that can't be used: an unknown key, a wrong type, an unreadable file."""

    exit_code = 2


class RedisUnreachable(UserError):
    """No connection to Redis, or it refuses ours."""

    exit_code = 3


class AddressInUse(UserError):
    """An address that a listener can't be bound to."""

    exit_code = 4
