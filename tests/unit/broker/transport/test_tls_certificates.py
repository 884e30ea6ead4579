"""Whose certificate is shown and taken, what is revoked, and files that change."""

from __future__ import annotations

import contextlib
import ssl
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from cryptography import x509

from flockmq.errors import ConfigError
from flockmq.transport.tls import Tls
from flockmq.transport.tls_certificates import TlsCertificates
from unit.broker.transport.pki import Client, Pki
from unit.broker.transport.test_tls import certificates, shaken


@pytest.mark.parametrize(
    ("asked", "shown"),
    [
        ("broker.example.com", "broker.example.com"),
        ("Mqtt.example.org", "mqtt.example.org"),
        ("a.devices.example.org", "*.devices.example.org"),
    ],
)
def test_the_certificate_is_the_one_for_the_host_that_is_asked_for(pki: Pki, asked: str, shown: str) -> None:
    sni = (pki.named("mqtt.example.org"), pki.named("*.devices.example.org"))
    server, client = Tls(certificates(pki, sni=sni)), Client(pki.trusting(), asked)
    shaken(server, client)
    assert client.names() == {shown}


def test_a_verified_client_has_its_name_and_subject(pki: Pki) -> None:
    server = Tls(certificates(pki, verify="peer", cacertfile=pki.folder / "ca.pem"))
    client = Client(pki.client("device, 7"))
    assert server.certificate() is None
    shaken(server, client)
    certificate = server.certificate()
    assert certificate is not None
    assert certificate.common_name == "device, 7"
    assert certificate.subject.startswith("CN=device\\, 7,")


def test_without_a_certificate_a_client_comes_only_where_none_is_asked_for(pki: Pki) -> None:
    ca = pki.folder / "ca.pem"
    optional = Tls(certificates(pki, verify="peer", cacertfile=ca))
    shaken(optional, Client(pki.trusting()))
    assert optional.is_open
    assert optional.certificate() is None
    required = Tls(certificates(pki, verify="peer", cacertfile=ca, fail_if_no_peer_cert=True))
    with pytest.raises(ssl.SSLError, match=r"(?i)certificate.required"):
        shaken(required, Client(pki.trusting()))
    assert required.fault is not None


def test_a_certificate_of_another_authority_is_refused_even_where_none_is_needed(pki: Pki, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    stranger = Pki(tmp_path / "other").client("stranger")
    pki.authority.configure_trust(stranger)
    server = Tls(certificates(pki, verify="peer", cacertfile=pki.folder / "ca.pem"))
    with pytest.raises(ssl.SSLError, match=r"(?i)unknown.ca"):
        shaken(server, Client(stranger))
    assert server.certificate() is None


def test_a_revoked_certificate_is_refused_and_no_other(pki: Pki) -> None:
    good, bad = pki.client("good"), pki.client("bad")
    ca = pki.folder / "ca.pem"
    made = certificates(pki, verify="peer", cacertfile=ca, crlfile=pki.revoking("bad"), fail_if_no_peer_cert=True)
    server = Tls(made)
    shaken(server, Client(good))
    assert server.is_open
    server = Tls(made)
    with pytest.raises(ssl.SSLError, match=r"(?i)revoked"):
        shaken(server, Client(bad))
    assert "certificate revoked" in str(server.fault)


def lists(folder: Path, *files: Path) -> Path:
    """One file of several revocation lists."""
    whole = folder / "lists.pem"
    whole.write_bytes(b"".join(file.read_bytes() for file in files))
    return whole


def test_whoever_a_revoked_intermediate_signed_is_refused_and_nobody_else(pki: Pki) -> None:
    good, bad = pki.intermediate("good"), pki.intermediate("bad")
    crlfile = lists(pki.folder, pki.revoking(bad), good.revoking(), bad.revoking())
    made = certificates(
        pki, verify="peer", cacertfile=pki.folder / "ca.pem", crlfile=crlfile, fail_if_no_peer_cert=True
    )
    for signer, is_open in ((good, True), (bad, False)):
        context = signer.client("device")
        pki.authority.configure_trust(context)
        server = Tls(made)
        with contextlib.nullcontext() if is_open else pytest.raises(ssl.SSLError, match=r"(?i)revoked"):
            shaken(server, Client(context))
        assert server.is_open is is_open
    assert "certificate revoked" in str(server.fault)


def test_a_chain_with_an_authority_that_has_no_list_is_refused(pki: Pki) -> None:
    """What nobody says to be good isn't taken for it."""
    signer = pki.intermediate("silent")
    context = signer.client("device")
    pki.authority.configure_trust(context)
    server = Tls(certificates(pki, verify="peer", cacertfile=pki.folder / "ca.pem", crlfile=pki.revoking()))
    with pytest.raises(ssl.SSLError):
        shaken(server, Client(context))
    assert "unable to get certificate CRL" in str(server.fault)


def test_each_authority_that_is_trusted_needs_a_list(pki: Pki) -> None:
    signer = pki.intermediate("signer")
    both = lists(pki.folder, pki.folder / "ca.pem", signer.folder / "ca.pem").rename(pki.folder / "both.pem")
    with pytest.raises(
        ConfigError,
        match=r"ssl\.a\.crlfile: .* has no list of .*, who is in cacertfile: add it, or take that authority",
    ):
        certificates(pki, verify="peer", cacertfile=both, crlfile=signer.revoking())
    certificates(pki, verify="peer", cacertfile=both, crlfile=lists(pki.folder, signer.revoking(), pki.revoking()))


@pytest.mark.parametrize("version", ["tlsv1.2", "tlsv1.3"])
def test_a_session_is_resumed_while_the_certificate_is_valid_and_no_longer(pki: Pki, version: str) -> None:
    context, now_s = pki.client("device"), time.time()
    made = verifying(pki, lambda: now_s, version)
    client = Client(context)
    shaken(Tls(made), client)
    back = Client(context, session=client.tls.session)
    server = Tls(made)
    shaken(server, back)
    assert server.is_open
    assert back.tls.session_reused
    device = x509.load_pem_x509_certificate((pki.folder / "client-device.pem").read_bytes())
    now_s = device.not_valid_after_utc.timestamp() + 1
    server = Tls(made)
    shaken(server, Client(context, session=back.tls.session))
    assert not server.is_open
    assert "certificate has expired" in str(server.fault)


@pytest.mark.parametrize("version", ["tlsv1.2", "tlsv1.3"])
def test_sessions_end_when_a_list_has_ended(pki: Pki, version: str) -> None:
    """OpenSSL checks lists in a whole handshake only."""
    context, now_s = pki.client("device"), time.time()
    made = verifying(pki, lambda: now_s, version)
    client = Client(context)
    shaken(Tls(made), client)
    for days, is_resumed in ((0.9, True), (1.1, False)):
        now_s = time.time() + days * 86_400
        made.refresh()
        back = Client(context, session=client.tls.session)
        shaken(Tls(made), back)
        assert back.tls.session_reused is is_resumed
    before = made.context
    made.refresh()
    assert made.context is before


def verifying(pki: Pki, now_s: Callable[[], float], version: str) -> TlsCertificates:
    settings = pki.settings(
        verify="peer", cacertfile=pki.folder / "ca.pem", crlfile=pki.revoking(), versions=(version,),
        fail_if_no_peer_cert=True,
    )  # fmt: skip
    return TlsCertificates("listeners.ssl.a", settings, now_s)


# --- files ----------------------------------------------------------------------------------------------------------


def shown_hosts(made: TlsCertificates, pki: Pki, host: str) -> set[str]:
    client = Client(pki.trusting(), host)
    shaken(Tls(made), client)
    return client.names()


def test_new_connections_have_the_new_certificate_and_old_ones_keep_theirs(pki: Pki) -> None:
    made = certificates(pki)
    server, client = Tls(made), Client(pki.trusting())
    shaken(server, client)
    pki.server("new.example.com")
    made.refresh()
    assert shown_hosts(made, pki, "new.example.com") == {"new.example.com"}
    assert server.unwrap(client.say(b"still here")) == b"still here"


def test_a_link_that_is_swapped_is_a_change(pki: Pki) -> None:
    """As Kubernetes does it: `tls.crt` → `..data/tls.crt`, and `..data` is what changes."""
    for state, host in (("..1", "broker.example.com"), ("..2", "new.example.com")):
        (pki.folder / state).mkdir()
        certificate, key = pki.server(host)
        certificate.rename(pki.folder / state / "tls.crt")
        key.rename(pki.folder / state / "tls.key")
    data = pki.folder / "..data"
    data.symlink_to("..1")
    made = certificates(pki, certfile=data / "tls.crt", keyfile=data / "tls.key")
    context = made.context
    made.refresh()
    assert made.context is context
    (pki.folder / "..tmp").symlink_to("..2")
    (pki.folder / "..tmp").rename(data)
    made.refresh()
    assert shown_hosts(made, pki, "new.example.com") == {"new.example.com"}


def test_a_broken_certificate_is_reported_once_and_the_old_one_stays(
    pki: Pki, caplog: pytest.LogCaptureFixture
) -> None:
    made = certificates(pki)
    made.settings.certfile.write_text("no certificate")
    made.refresh()
    made.refresh()
    assert [record.message for record in caplog.records if record.levelname == "ERROR"] == [
        f"listeners.ssl.a.certfile: '{made.settings.certfile}' with keyfile '{made.settings.keyfile}' can't be used: "
        "one of them isn't PEM, or the key needs a password; the certificate from before stays"
    ]
    assert shown_hosts(made, pki, "broker.example.com") == {"broker.example.com"}
    pki.server("broker.example.com", "again.example.com")
    made.refresh()
    assert "again.example.com" in shown_hosts(made, pki, "broker.example.com")


def test_files_that_cannot_be_used_are_named_with_their_key(pki: Pki) -> None:
    certificate, _ = pki.server("broker.example.com")
    _, other = pki.server("other.example.com", name="other")
    missing = pki.folder / "none.pem"
    for changed, expected in (
        (
            {"certfile": missing, "keyfile": missing},
            f"listeners.ssl.a.certfile: '{missing}' can't be read: No such file or directory; name a PEM file",
        ),
        ({"certfile": certificate, "keyfile": other}, "can't be used: key values mismatch"),
        ({"ciphers": "NONE"}, "listeners.ssl.a.ciphers: 'NONE' names no cipher of OpenSSL"),
        ({"verify": "peer", "cacertfile": other}, f"listeners.ssl.a.cacertfile: '{other}' can't be used"),
        (
            {"verify": "peer", "cacertfile": certificate, "crlfile": certificate},
            f"listeners.ssl.a.crlfile: '{certificate}' has no revocation list",
        ),
    ):
        with pytest.raises(ConfigError) as caught:
            certificates(pki, **changed)
        assert expected in str(caught.value)
