"""A verified client certificate is enough (mechanism `cert`)."""

from __future__ import annotations

from flockmq.auth.attempt import Attempt, Granted, Pass, Refused, Verdict
from flockmq.auth.settings import Certificate
from flockmq.mqtt.reason import Reason


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
        username = certificate.common_name if self._settings.username == "cn" else certificate.subject
        if not username:
            return Refused(Reason.NOT_AUTHORIZED, "its certificate has no common name")
        return Granted(username.encode())
