"""Reads the secrets of `flockmq ctl`. They aren't arguments, because all users of the machine can see these.

A password comes from a prompt, or from standard input if that isn't a terminal. The API key comes from a file or from
FLOCKMQ_API_KEY.
"""

from __future__ import annotations

import getpass
import os
import sys
from pathlib import Path
from typing import Final, TextIO

from flockmq.bounds import SECRET_MAX_BYTES
from flockmq.config.values import Secret
from flockmq.errors import ConfigError

KEY_VARIABLE: Final = "FLOCKMQ_API_KEY"


def password(source: TextIO | None = None) -> str:
    """Read a password: at a terminal ask for it twice, else take the first line of standard input. Raises
    ConfigError."""
    source = sys.stdin if source is None else source
    try:
        if not source.isatty():
            password = source.readline(SECRET_MAX_BYTES).rstrip("\r\n")
        else:
            password = getpass.getpass("Password: ")
            if getpass.getpass("Again: ") != password:
                raise ConfigError("the two passwords differ; try again")
    except EOFError:
        password = ""
    except UnicodeDecodeError:
        raise ConfigError("the password isn't UTF-8 text") from None
    if not password:
        raise ConfigError("the password is empty; type one, or give it on standard input")
    check_text(password, "the password")
    return password


def check_text(text: str, what: str) -> None:
    """Raise ConfigError if a text from an argument or standard input isn't UTF-8."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ConfigError(f"{what} isn't UTF-8 text") from None


def key(file: Path | None) -> Secret:
    if file is None:
        key = os.environ.get(KEY_VARIABLE, "").strip()
        if not key:
            raise ConfigError(f"no API key: name the file that holds it with --api-key-file, or set {KEY_VARIABLE}")
        return _checked_key(key, KEY_VARIABLE)
    try:
        with file.open("rb") as opened:
            key = opened.read(SECRET_MAX_BYTES).decode().strip()
    except OSError as error:
        raise ConfigError(f"--api-key-file: {str(file)!r} can't be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"--api-key-file: {str(file)!r} isn't UTF-8 text") from None
    if not key:
        raise ConfigError(f"--api-key-file: {str(file)!r} is empty")
    return _checked_key(key, f"--api-key-file: {str(file)!r}")


def _checked_key(key: str, where: str) -> Secret:
    if not key.isprintable():
        raise ConfigError(f"{where}: the key must be one line of text, for it stands in a header")
    return Secret(key)
