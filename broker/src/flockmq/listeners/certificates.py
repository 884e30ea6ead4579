"""A listener's certificates: OpenSSL's context of them, made anew when a file changes.

What always holds: `context` works. Files that can't be used are reported, once for each change, and what was read
before stays; connections keep what they began with. Kubernetes swaps a link: a file is what its link leads to.
"""

from __future__ import annotations

import logging
import os
import re
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Final, cast

from flockmq.config.schema import SslListener
from flockmq.errors import ConfigError
from flockmq.session.peer import Certificate

log: Final = logging.getLogger(__name__)

_VERSIONS: Final = {"tlsv1.2": ssl.TLSVersion.TLSv1_2, "tlsv1.3": ssl.TLSVersion.TLSv1_3}
_Stamp = tuple[int, int, int, int]


class Certificates:
    """`key` is where the listener is configured: `listeners.ssl.default`."""

    def __init__(self, key: str, settings: SslListener) -> None:
        """Raises ConfigError."""
        self.key = key
        self.settings = settings
        self._stamps = self._look()
        self.context = self._made()

    def refresh(self) -> None:
        """Read the files again if one changed."""
        stamps = self._look()
        if stamps == self._stamps:
            return
        self._stamps = stamps
        try:
            self.context = self._made()
        except (ConfigError, OSError) as error:  # which OpenSSL raises for files that are just being replaced
            log.error("%s; the certificate from before stays", error)
        else:
            log.info("%s: certificates were read again", self.key)

    def _files(self) -> list[tuple[str, Path]]:
        settings = self.settings
        files = [("certfile", settings.certfile), ("keyfile", settings.keyfile)]
        if settings.cacertfile is not None:
            files.append(("cacertfile", settings.cacertfile))
        if settings.crlfile is not None:
            files.append(("crlfile", settings.crlfile))
        for at, name in enumerate(settings.sni):
            files += ((f"sni[{at}].certfile", name.certfile), (f"sni[{at}].keyfile", name.keyfile))
        return files

    def _look(self) -> list[_Stamp | None]:
        """What tells one state of the files from another."""
        stamps: list[_Stamp | None] = []
        for _, file in self._files():
            try:
                stat = os.stat(file)  # noqa: PTH116 (every few seconds, for every file)
            except OSError:
                stamps.append(None)
            else:
                stamps.append((stat.st_dev, stat.st_ino, stat.st_mtime_ns, stat.st_size))
        return stamps

    def _made(self) -> ssl.SSLContext:
        for name, file in self._files():
            try:
                with file.open("rb"):
                    pass
            except OSError as error:
                raise ConfigError(f"{self.key}.{name}: {str(file)!r} can't be read: {error.strerror}") from None
        settings = self.settings
        context = self._context("", settings.certfile, settings.keyfile)
        if settings.sni:
            others = {
                name.host.lower(): self._context(f"sni[{at}].", name.certfile, name.keyfile)
                for at, name in enumerate(settings.sni)
            }
            context.sni_callback = _ByName(others).choose
        return context

    def _context(self, prefix: str, certfile: Path, keyfile: Path) -> ssl.SSLContext:
        settings = self.settings
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = min(_VERSIONS[version] for version in settings.versions)
        context.maximum_version = max(_VERSIONS[version] for version in settings.versions)
        context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_CIPHER_SERVER_PREFERENCE
        context.num_tickets = 1  # OpenSSL sends two to each client of TLS 1.3
        password = "" if settings.password is None else settings.password.reveal()  # None would ask the terminal
        try:
            context.load_cert_chain(certfile, keyfile, password)
        except (ssl.SSLError, ValueError) as error:
            why = f"{str(certfile)!r} with keyfile {str(keyfile)!r} can't be used: {_reason(error)}"
            raise ConfigError(f"{self.key}.{prefix}certfile: {why}") from None
        if settings.ciphers:
            try:
                context.set_ciphers(settings.ciphers)
            except ssl.SSLError:
                raise ConfigError(f"{self.key}.ciphers: {settings.ciphers!r} names no cipher of OpenSSL") from None
        if settings.cacertfile is not None and settings.verify == "peer":
            required = settings.fail_if_no_peer_cert
            context.verify_mode = ssl.CERT_REQUIRED if required else ssl.CERT_OPTIONAL
            self._trust(context, "cacertfile", settings.cacertfile)
            if settings.crlfile is not None:
                self._trust(context, "crlfile", settings.crlfile)
                if not context.cert_store_stats()["crl"]:
                    raise ConfigError(f"{self.key}.crlfile: {str(settings.crlfile)!r} has no revocation list in it")
                context.verify_flags |= ssl.VERIFY_CRL_CHECK_LEAF
        return context

    def _trust(self, context: ssl.SSLContext, name: str, file: Path) -> None:
        try:
            context.load_verify_locations(file)
        except ssl.SSLError as error:
            raise ConfigError(f"{self.key}.{name}: {str(file)!r} can't be used: {_reason(error)}") from None


class _ByName:
    """Chooses the certificate for the host that a client asks for; the listener's own where none is named for it."""

    def __init__(self, contexts: Mapping[str, ssl.SSLContext]) -> None:
        self._contexts = contexts

    def choose(self, tls: ssl.SSLObject, host: str | None, _: ssl.SSLContext) -> None:
        if host is None:
            return
        host = host.lower()
        context = self._contexts.get(host) or self._contexts.get(f"*.{host.partition('.')[2]}")
        if context is not None:
            tls.context = context


def _reason(error: Exception) -> str:
    """OpenSSL's word for it, without the place in its source."""
    said = getattr(error, "reason", None) or re.sub(r"^\[.*?\] | \(_ssl\.c:\d+\)$", "", str(error))
    word = str(said).replace("_", " ").lower()
    return _MEANT.get(word, word)


_MEANT: Final = {
    "pem lib": "one of them isn't PEM, or the key needs a password",
    "bad decrypt": "the key's password is wrong",
}


# --- a client's certificate -----------------------------------------------------------------------------------------

_SHORT: Final = {
    "commonName": "CN",
    "countryName": "C",
    "domainComponent": "DC",
    "localityName": "L",
    "organizationName": "O",
    "organizationalUnitName": "OU",
    "stateOrProvinceName": "ST",
    "streetAddress": "STREET",
    "userId": "UID",
}


def client_certificate(tls: ssl.SSLObject) -> Certificate | None:
    """The client's certificate, if it showed one that was verified."""
    shown = tls.getpeercert()
    if not shown:
        return None
    parts: list[str] = []
    common_name = ""
    subject = cast("tuple[tuple[tuple[str, str], ...], ...]", shown.get("subject", ()))
    for names in subject:
        said = []
        for name, value in names:
            if name == "commonName":
                common_name = value
            said.append(f"{_SHORT.get(name, name)}={_escaped(value)}")
        parts.append("+".join(said))
    return Certificate(common_name, ",".join(reversed(parts)))


def _escaped(value: str) -> str:
    """As RFC 4514 section 2.4 writes a value."""
    text = "".join(f"\\{letter}" if letter in ',+"\\<>;=' else letter for letter in value).replace("\0", "\\00")
    if text[:1] in ("#", " "):
        text = "\\" + text
    return text[:-1] + "\\ " if len(text) > 1 and text.endswith(" ") else text
