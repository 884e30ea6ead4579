"""Errors that a user can fix. The command line prints one as a line and exits with its exit code."""

from __future__ import annotations

import errno


class UserError(Exception):
    """The message says in one line what is wrong, where, and how to fix it. Any other exception that reaches the
    command line is a bug."""

    exit_code: int = 1


class ConfigError(UserError):
    """The configuration is invalid: an unknown key, a wrong type, an unreadable file."""

    exit_code = 2


class RedisUnavailable(UserError):
    """Redis can't be reached, or refuses the connection."""

    exit_code = 3


class AddressInUse(UserError):
    """A listener can't be bound to its address."""

    exit_code = 4


class LeftCluster(UserError):
    """This core left its cluster, and was started again."""

    exit_code = 5


def cannot_bind(key: str, address: object, option: str | None, error: OSError) -> AddressInUse:
    """The error for a listener's address. It names the key, the reason, and the option that sets another address."""
    why = "is in use" if error.errno == errno.EADDRINUSE else f"can't be bound: {error.strerror or error}"
    return AddressInUse(f"{key}: {address} {why}; choose another" + (f" with {option} HOST:PORT" if option else ""))
