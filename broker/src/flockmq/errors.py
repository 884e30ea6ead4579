"""Errors that a user can mend. The command line shows each as one line and leaves with its exit code."""

from __future__ import annotations

import errno


class UserError(Exception):
    """What is wrong, where, and how to mend it, in one line. Any other exception that escapes is a defect."""

    exit_code: int = 1


class ConfigError(UserError):
    """A configuration that can't be used: an unknown key, a wrong type, an unreadable file."""

    exit_code = 2


class RedisUnavailable(UserError):
    """No connection to Redis, or it refuses ours."""

    exit_code = 3


class AddressInUse(UserError):
    """An address that a listener can't be bound to."""

    exit_code = 4


def cannot_bind(key: str, address: object, option: str | None, error: OSError) -> AddressInUse:
    """The error for a listener's address: which key, why not, and the option that mends it, if there is one."""
    why = "is in use" if error.errno == errno.EADDRINUSE else f"can't be bound: {error.strerror or error}"
    return AddressInUse(f"{key}: {address} {why}; choose another" + (f" with {option} HOST:PORT" if option else ""))
