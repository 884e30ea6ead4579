"""A verified client certificate is enough (mechanism `cert`)."""

from __future__ import annotations

from flockmq.auth.attempt import Attempt, Granted, Pass, Refused, Verdict
from flockmq.auth.settings import Certificate
from flockmq.mqtt.reason import Reason
from flockmq.session.peer import Certificate as PeerCertificate


class CertificateAuthenticator:
    def __init__(self, settings: Certificate) -> None:
        self._settings = settings

    async def start(self) -> None:
        """Nothing is needed."""

    async def stop(self) -> None:
        """Nothing was needed."""

    def check(self, attempt: Attempt) -> Verdict:
        certificate = attempt.peer.certificate
        if certificate is None:
            return Pass.UNKNOWN
        username = _taken(certificate, self._settings.username)
        if not username:
            return Refused(Reason.NOT_AUTHORIZED, "its certificate has no common name")
        if self._settings.clientid is None:
            return Granted(username)
        client_id = _taken(certificate, self._settings.clientid)
        if not client_id or attempt.client_id not in (b"", client_id):
            return Refused(Reason.CLIENT_IDENTIFIER_NOT_VALID, "its client id isn't its certificate's")
        return Granted(username, client_id=client_id)


def _taken(certificate: PeerCertificate, what: str) -> bytes:
    return (certificate.common_name if what == "cn" else certificate.subject).encode()
