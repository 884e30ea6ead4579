"""Passwords and certificates, read from files where a connection is made."""

import ssl
from pathlib import Path
from typing import Final

from pyspark_flockmq.errors import OptionError

PASSWORD_FILE_MAX_BYTES: Final = 4096


def read_password(path: str) -> str:
    """The file's text without the line end; raises OptionError when it can't be read or is empty."""
    try:
        with Path(path).open("rb") as file:
            text = file.read(PASSWORD_FILE_MAX_BYTES).decode()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it isn't UTF-8"
        raise OptionError(f"the password file {path} can't be read: {reason}") from None
    password = text.rstrip("\r\n")
    if not password:
        raise OptionError(f"the password file {path} is empty")
    return password


def tls_context(cacertfile: str | None, certfile: str | None, keyfile: str | None) -> ssl.SSLContext:
    """What is shown to servers and who is believed of them: the authorities in `cacertfile` alone; None: those that the
    system trusts. Raises OptionError."""
    for name, path in (("cacertfile", cacertfile), ("certfile", certfile), ("keyfile", keyfile)):
        if path is None:
            continue
        try:
            with Path(path).open("rb"):
                pass
        except OSError as error:
            raise OptionError(f"the {name} {path} can't be read: {error.strerror}") from None
    try:
        context = ssl.create_default_context(cafile=cacertfile)
        if certfile is not None:
            context.load_cert_chain(certfile, keyfile, password="")
    except (ssl.SSLError, ValueError) as error:
        raise OptionError(f"the cacertfile, certfile or keyfile can't be used: {error}") from None
    return context
