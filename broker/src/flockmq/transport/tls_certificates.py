"""A listener's certificates as an OpenSSL context, which is renewed when a file changes.

Existing connections keep their context. A client that resumes a TLS session isn't verified again by OpenSSL. So
sessions end with their context, which is also renewed when an authority's certificate or a revocation list has ended;
and whoever resumes one after the client's own certificate ended is refused (`certificate_ended`).
"""

from __future__ import annotations

import math
import ssl
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, cast

from flockmq.config.listener_settings import SslListenerSettings
from flockmq.errors import ConfigError
from flockmq.pem_files import PemFiles, check_lists, first_end_s, load_chain, load_trust
from flockmq.protocol.client import ClientCertificate

_VERSIONS: Final = {"tlsv1.2": ssl.TLSVersion.TLSv1_2, "tlsv1.3": ssl.TLSVersion.TLSv1_3}


class TlsCertificates:
    """`key`: the listener's configuration key, as in `listeners.ssl.default`."""

    def __init__(self, key: str, settings: SslListenerSettings, now_s: Callable[[], float] = time.time) -> None:
        """Raises ConfigError."""
        self.key = key
        self.settings = settings
        self.now_s = now_s
        self._sessions_end_s = math.inf
        self._pem = PemFiles(key, self._files(), self._made)

    @property
    def context(self) -> ssl.SSLContext:
        return self._pem.made

    def refresh(self) -> None:
        """Read the files again if one changed, or an authority or a revocation list in them has ended."""
        self._pem.refresh(is_due=self.now_s() >= self._sessions_end_s)

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

    def _made(self) -> ssl.SSLContext:
        settings = self.settings
        context = self._context("", settings.certfile, settings.keyfile)
        if settings.sni:
            others = {
                name.host.lower(): self._context(f"sni[{at}].", name.certfile, name.keyfile)
                for at, name in enumerate(settings.sni)
            }
            context.sni_callback = _ByName(others).choose
        if settings.cacertfile is not None and settings.verify == "peer":
            verifying = [file for file in (settings.cacertfile, settings.crlfile) if file is not None]
            self._sessions_end_s = first_end_s(*verifying, after_s=self.now_s())
        return context

    def _context(self, prefix: str, certfile: Path, keyfile: Path) -> ssl.SSLContext:
        settings = self.settings
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = min(_VERSIONS[version] for version in settings.versions)
        context.maximum_version = max(_VERSIONS[version] for version in settings.versions)
        context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_CIPHER_SERVER_PREFERENCE
        context.num_tickets = 1  # OpenSSL's default is two for each TLS 1.3 client.
        password = "" if settings.password is None else settings.password.reveal()
        load_chain(context, f"{self.key}.{prefix}certfile", certfile, keyfile, password)
        if settings.ciphers:
            try:
                context.set_ciphers(settings.ciphers)
            except ssl.SSLError:
                raise ConfigError(f"{self.key}.ciphers: {settings.ciphers!r} names no cipher of OpenSSL") from None
        if settings.cacertfile is not None and settings.verify == "peer":
            required = settings.fail_if_no_peer_cert
            context.verify_mode = ssl.CERT_REQUIRED if required else ssl.CERT_OPTIONAL
            load_trust(context, f"{self.key}.cacertfile", settings.cacertfile)
            if settings.crlfile is not None:
                load_trust(context, f"{self.key}.crlfile", settings.crlfile)
                if not context.cert_store_stats()["crl"]:
                    raise ConfigError(f"{self.key}.crlfile: {str(settings.crlfile)!r} has no revocation list in it")
                check_lists(f"{self.key}.crlfile", settings.cacertfile, settings.crlfile)
                context.verify_flags |= ssl.VERIFY_CRL_CHECK_CHAIN
        return context


class _ByName:
    """Chooses the certificate for the host that a client asks for; if there is none, the listener's own."""

    def __init__(self, contexts: Mapping[str, ssl.SSLContext]) -> None:
        self._contexts = contexts

    def choose(self, tls: ssl.SSLObject, host: str | None, _: ssl.SSLContext) -> None:
        if host is None:
            return
        host = host.lower()
        context = self._contexts.get(host) or self._contexts.get(f"*.{host.partition('.')[2]}")
        if context is not None:
            tls.context = context


# --- client certificates ----------------------------------------------------------------------------------------------

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


def client_certificate(tls: ssl.SSLObject) -> ClientCertificate | None:
    """The client's certificate, if it sent one that was verified."""
    shown = tls.getpeercert()
    if not shown:
        return None
    parts: list[str] = []
    common_name = ""
    subject = cast("tuple[tuple[tuple[str, str], ...], ...]", shown.get("subject", ()))
    for names in subject:
        values = []
        for name, value in names:
            if name == "commonName":
                common_name = value
            values.append(f"{_SHORT.get(name, name)}={_escaped(value)}")
        parts.append("+".join(values))
    return ClientCertificate(common_name, ",".join(reversed(parts)))


def certificate_ended(tls: ssl.SSLObject, now_s: float) -> bool:
    """Whether a TLS session was resumed after the client's certificate had ended, which OpenSSL doesn't check."""
    shown = tls.getpeercert() if tls.session_reused else None
    return shown is not None and "notAfter" in shown and ssl.cert_time_to_seconds(str(shown["notAfter"])) < now_s


def _escaped(value: str) -> str:
    """A value in the form of RFC 4514, section 2.4."""
    text = "".join(f"\\{letter}" if letter in ',+"\\<>;=' else letter for letter in value).replace("\0", "\\00")
    if text[:1] in ("#", " "):
        text = "\\" + text
    return text[:-1] + "\\ " if len(text) > 1 and text.endswith(" ") else text
