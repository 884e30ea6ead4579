"""Authentication by a verified client certificate alone (mechanism `cert`)."""

from __future__ import annotations

from flockmq.auth.authenticator import Attempt, Granted, LoginRefused, Pass, Verdict
from flockmq.config.auth_settings import CertificateSettings
from flockmq.mqtt.reason import Reason


class CertificateAuthenticator:
    def __init__(self, settings: CertificateSettings) -> None:
        self._settings = settings

    async def start(self) -> None:
        """Nothing to start."""

    async def stop(self) -> None:
        """Nothing to stop."""

    def check(self, attempt: Attempt) -> Verdict:
        certificate = attempt.peer.certificate
        if certificate is None:
            return Pass.UNKNOWN
        username = certificate.common_name if self._settings.username == "cn" else certificate.subject
        if not username:
            return LoginRefused(Reason.NOT_AUTHORIZED, "its certificate has no common name")
        return Granted(username.encode())
