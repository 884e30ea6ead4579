"""Reloads PEM files when they change.

Invariants: `made` is always made from valid files. Invalid files are logged, once for each change, and the former value
stays. Symbolic links are followed, because Kubernetes replaces links to update files.
"""

from __future__ import annotations

import contextlib
import logging
import math
import os
import re
import ssl
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, Generic, TypeVar

from cryptography import x509

from flockmq.errors import ConfigError

log: Final = logging.getLogger(__name__)

T = TypeVar("T")
_Stamp = tuple[int, int, int, int]


class PemFiles(Generic[T]):
    """`made` is the result of `make`, which reads the files. `key` is the section of the files in the configuration,
    for example `listeners.ssl.default`; `files` are its keys with their values."""

    def __init__(self, key: str, files: Sequence[tuple[str, Path]], make: Callable[[], T]) -> None:
        """Raises ConfigError for invalid files."""
        self._key = key
        self._files = files
        self._make = make
        self._stamps = self._look()
        self.made = self._made()

    def refresh(self, *, is_due: bool = False) -> None:
        """Reload the files if one has changed, or if `is_due`."""
        stamps = self._look()
        if stamps == self._stamps and not is_due:
            return
        self._stamps = stamps
        try:
            self.made = self._made()
        except (ConfigError, OSError) as error:  # OpenSSL raises OSError for files that are being replaced
            log.error("%s; the certificate from before stays", error)
        else:
            log.info("%s: certificates were read again", self._key)

    def _look(self) -> list[_Stamp | None]:
        """The files' stamps, which differ after a change."""
        stamps: list[_Stamp | None] = []
        for _, file in self._files:
            try:
                stat = os.stat(file)  # noqa: PTH116 (every few seconds, for every file)
            except OSError:
                stamps.append(None)
            else:
                stamps.append((stat.st_dev, stat.st_ino, stat.st_mtime_ns, stat.st_size))
        return stamps

    def _made(self) -> T:
        for name, file in self._files:
            try:
                with file.open("rb"):
                    pass
            except OSError as error:
                raise unreadable(f"{self._key}.{name}", file, error) from None
        return self._make()


def unreadable(key: str, file: Path, error: OSError) -> ConfigError:
    mend = "name a PEM file there that the user of this process may read"
    return ConfigError(f"{key}: {str(file)!r} can't be read: {error.strerror}; {mend}")


def load_chain(context: ssl.SSLContext, key: str, certfile: Path, keyfile: Path, password: str = "") -> None:
    """Load our certificate and its key. Raises ConfigError, which begins with `key`, the certfile's key."""
    try:
        context.load_cert_chain(certfile, keyfile, password)  # without a password OpenSSL would ask the terminal
    except (ssl.SSLError, ValueError) as error:
        why = f"{str(certfile)!r} with keyfile {str(keyfile)!r} can't be used: {reason(error)}"
        raise ConfigError(f"{key}: {why}") from None


def load_trust(context: ssl.SSLContext, key: str, file: Path) -> None:
    """Load authorities or revocation lists. Raises ConfigError, which begins with `key`, the file's key."""
    try:
        context.load_verify_locations(file)
    except ssl.SSLError as error:
        raise ConfigError(f"{key}: {str(file)!r} can't be used: {reason(error)}") from None


_CERTIFICATE: Final = re.compile(rb"-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----", re.DOTALL)
_LIST: Final = re.compile(rb"-----BEGIN X509 CRL-----.*?-----END X509 CRL-----", re.DOTALL)


def first_end_s(*files: Path, after_s: float) -> float:
    """When the first of the certificates and revocation lists in these files ends that is valid until after `after_s`
    (seconds since the epoch); infinity: none does. What only OpenSSL can read isn't looked at."""
    ends = []
    for file in files:
        pem = file.read_bytes()
        for one in _LIST.findall(pem):
            with contextlib.suppress(ValueError):
                ends.append(x509.load_pem_x509_crl(one).next_update_utc)
        for one in _CERTIFICATE.findall(pem):
            with contextlib.suppress(ValueError):
                ends.append(x509.load_pem_x509_certificate(one).not_valid_after_utc)
    return min((end.timestamp() for end in ends if end is not None and end.timestamp() > after_s), default=math.inf)


def check_lists(key: str, cacertfile: Path, crlfile: Path) -> None:
    """Check that each authority has a revocation list, because otherwise OpenSSL refuses all its certificates. Raises
    ConfigError, which begins with `key`, the crlfile's key."""
    try:
        lists = [x509.load_pem_x509_crl(pem) for pem in _LIST.findall(crlfile.read_bytes())]
        authorities = x509.load_pem_x509_certificates(cacertfile.read_bytes())
    except ValueError as error:
        raise ConfigError(f"{key}: {str(crlfile)!r} can't be used: {error}") from None
    listed = {one.issuer for one in lists}
    for authority in authorities:
        if authority.subject not in listed:
            name = authority.subject.rfc4514_string()
            mend = "add it, or take that authority out of cacertfile"
            raise ConfigError(f"{key}: {str(crlfile)!r} has no list of {name!r}, who is in cacertfile: {mend}")


def reason(error: Exception) -> str:
    """OpenSSL's reason for an error, without the position in its source."""
    text = getattr(error, "reason", None) or re.sub(r"^\[.*?\] | \(_ssl\.c:\d+\)$", "", str(error))
    word = str(text).replace("_", " ").lower()
    return _CLEARER.get(word, word)


_CLEARER: Final = {
    "pem lib": "one of them isn't PEM, or the key needs a password",
    "bad decrypt": "the key's password is wrong",
}
