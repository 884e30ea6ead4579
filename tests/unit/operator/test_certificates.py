"""Certificates of links: renewed well before they expire, and at each moment every two nodes believe one another,
though each may still have the files of a while ago."""

import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.exceptions import InvalidSignature

from flockmq_operator.certificates import (
    AUTHORITY_LIFE,
    CERTIFICATE_LIFE,
    OVERLAP,
    ROLES,
    Files,
    Unreadable,
    next_step,
    of_links,
    of_redis,
    read,
)

LINKS = of_links("demo")
START = datetime(2026, 11, 21, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
BEHIND = timedelta(hours=2)
"""How old a node's files may be: more than the kubelet ever takes."""


def fresh(now: datetime = START) -> dict[str, bytes]:
    step = next_step(None, LINKS, now)
    assert step
    return step.files


def of_earlier_operator() -> dict[str, bytes]:
    """One certificate for all nodes, which says no role."""
    files = fresh()
    return {name.replace("core", "tls"): content for name, content in files.items() if "replicant" not in name}


def history(
    files: dict[str, bytes], start: datetime, until: datetime, every: timedelta, *, without_role: bool = False
) -> list[tuple[datetime, str]]:
    """What happens, if the operator looks every so often; `files` are changed in place."""
    told = []
    now = start
    while now < until:
        if step := next_step(files, LINKS, now, without_role=without_role):
            files.clear()
            files.update(step.files)
            told.append((now, step.sentence))
        now += every
    return told


def believes(believer: Files, shower: Files, now: datetime) -> bool:
    """Whether a node with the files `believer` takes one with `shower` for a node, as X.509 has it."""
    return all(is_believed(believer, shower[name], now) for name in shower if name in ("core.crt", "replicant.crt"))


def is_believed(believer: Files, certificate: bytes, now: datetime) -> bool:
    shown = x509.load_pem_x509_certificate(certificate)
    for authority in x509.load_pem_x509_certificates(believer["ca.crt"]):
        valid = all(each.not_valid_before_utc <= now <= each.not_valid_after_utc for each in (shown, authority))
        try:
            shown.verify_directly_issued_by(authority)
        except (ValueError, InvalidSignature):
            continue
        return valid
    return False


def test_what_is_fresh_is_left_alone() -> None:
    assert next_step(fresh(), LINKS, START) is None
    assert next_step(fresh(), LINKS, START + CERTIFICATE_LIFE / 2) is None


def test_a_certificate_is_renewed_at_two_thirds_of_its_life() -> None:
    files = fresh()
    assert next_step(files, LINKS, START + CERTIFICATE_LIFE * 2 / 3 - HOUR) is None
    step = next_step(files, LINKS, START + CERTIFICATE_LIFE * 2 / 3)
    assert step
    assert all(step.files[f"{role}.crt"] != files[f"{role}.crt"] for role in ROLES)
    assert (step.files["ca.crt"], step.files["ca.key"]) == (files["ca.crt"], files["ca.key"])


def test_an_authority_is_replaced_in_three_steps_that_leave_time_to_read() -> None:
    files = fresh()
    told = history(files, START + CERTIFICATE_LIFE * 2 / 3, START + AUTHORITY_LIFE * 2 / 3, timedelta(days=1))
    assert {sentence for _, sentence in told} == {"Renewed the certificates of links"}
    begun = START + AUTHORITY_LIFE * 2 / 3
    told = history(files, begun, begun + timedelta(days=7), HOUR)
    assert [at - begun for at, _ in told] == [timedelta(), OVERLAP, 2 * OVERLAP]
    assert [sentence for _, sentence in told] == [
        "Made a new authority for links; the old one is still believed",
        "The certificates of links are now of the new authority",
        "The old authority of links is believed no longer",
    ]
    assert files["ca.crt"].count(b"BEGIN CERTIFICATE") == 1


def test_every_two_nodes_believe_one_another_all_the_while() -> None:
    files = fresh()
    versions: list[tuple[datetime, dict[str, bytes]]] = [(START, dict(files))]
    now = START
    while now < START + 2 * AUTHORITY_LIFE:
        if step := next_step(files, LINKS, now):
            files = step.files
            versions.append((now, files))
        ended = [since for since, _ in versions[1:]] + [now + HOUR]
        about = [held for (_, held), end in zip(versions, ended, strict=True) if end > now - BEHIND]
        assert all(believes(one, other, now) for one in about for other in about), now
        now += 6 * HOUR
    assert len(versions) > 30


@pytest.mark.parametrize("away", [CERTIFICATE_LIFE, AUTHORITY_LIFE - HOUR, AUTHORITY_LIFE, 3 * AUTHORITY_LIFE])
def test_an_operator_that_was_away_for_too_long_mends_it_at_once(away: timedelta) -> None:
    now = START + away
    files = fresh()
    while step := next_step(files, LINKS, now):
        files = step.files
    assert believes(files, files, now + HOUR)


def test_the_authoritys_key_signs_what_is_shown_and_openssl_agrees(tmp_path: Path) -> None:
    for name, content in fresh(datetime.now(UTC)).items():
        (tmp_path / name).write_bytes(content)
    sides = []
    for side in (ssl.PROTOCOL_TLS_SERVER, ssl.PROTOCOL_TLS_CLIENT):
        context = ssl.SSLContext(side)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_REQUIRED
        context.verify_flags |= ssl.VERIFY_X509_STRICT
        role = "core" if side == ssl.PROTOCOL_TLS_SERVER else "replicant"
        context.load_cert_chain(tmp_path / f"{role}.crt", tmp_path / f"{role}.key")
        context.load_verify_locations(tmp_path / "ca.crt")
        sides.append(context)
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    server = sides[0].wrap_bio(to_server, to_client, server_side=True)
    client = sides[1].wrap_bio(to_client, to_server)
    for side in (client, server, client, server):
        try:
            side.do_handshake()
        except ssl.SSLWantReadError:
            continue
    assert client.getpeercert()
    assert server.getpeercert()


@pytest.mark.parametrize(
    ("spoil", "sentence"),
    [
        ({"replicant.crt": None}, "replicant.crt is missing"),
        ({"ca.crt": b"nonsense"}, "ca.crt isn't PEM"),
        ({"ca.key": fresh()["ca.key"]}, "ca.key isn't the key of the first certificate"),
        ({"core.key": fresh()["core.key"]}, "core.key isn't the key"),
    ],
)
def test_what_somebody_else_wrote_is_refused(spoil: dict[str, bytes | None], sentence: str) -> None:
    files = {key: value for key, value in {**fresh(), **spoil}.items() if value is not None}
    with pytest.raises(Unreadable, match=sentence):
        next_step(files, LINKS, START)


def test_the_certificate_never_outlives_its_authority() -> None:
    files = fresh()
    now = START + AUTHORITY_LIFE * 2 / 3 - HOUR
    while now < START + AUTHORITY_LIFE:
        held = read(files, LINKS)
        assert held.oldest.not_valid_after_utc <= max(
            each.not_valid_after_utc for each in (held.newest.certificate, held.before) if each
        )
        if step := next_step(files, LINKS, now):
            files = step.files
        now += timedelta(days=1)


def roles(certificate: bytes) -> list[str]:
    names = x509.load_pem_x509_certificate(certificate).extensions.get_extension_for_class(x509.SubjectAlternativeName)
    return names.value.get_values_for_type(x509.UniformResourceIdentifier)


def test_each_roles_certificate_says_its_role_and_no_other() -> None:
    files = fresh()
    assert {role: roles(files[f"{role}.crt"]) for role in ROLES} == {
        "core": ["urn:flockmq:role:core"],
        "replicant": ["urn:flockmq:role:replicant"],
    }
    assert files.keys() == {"ca.crt", "ca.key", "core.crt", "core.key", "replicant.crt", "replicant.key"}


def test_pods_of_an_earlier_operator_are_believed_as_long_as_there_are_any() -> None:
    files = of_earlier_operator()
    told = history(files, START, START + CERTIFICATE_LIFE, HOUR, without_role=True)
    assert [sentence for _, sentence in told] == [
        "Made certificates for links that say a node's role",
        "Renewed the certificates of links",
    ]
    now = START + CERTIFICATE_LIFE
    assert all(is_believed(files, files[f"{name}.crt"], now) for name in ("tls", *ROLES))
    assert roles(files["tls.crt"]) == []


def test_when_they_are_gone_a_certificate_without_a_role_is_believed_no_longer() -> None:
    files = of_earlier_operator()
    kept = files["tls.crt"]
    history(files, START, START + HOUR, HOUR, without_role=True)
    told = history(files, START + HOUR, START + timedelta(days=4), HOUR)
    assert [sentence for _, sentence in told] == [
        "Made a new authority for links: its certificates all say a role",
        "The certificates of links are now of the new authority",
        "The old authority of links is believed no longer",
    ]
    assert "tls.crt" not in files
    assert not is_believed(files, kept, START + timedelta(days=4))
    assert believes(files, files, START + timedelta(days=4))


def test_redis_shows_what_no_link_believes() -> None:
    step = next_step(None, of_redis("demo"), START)
    assert step
    assert step.files.keys() == {"ca.crt", "ca.key", "redis.crt", "redis.key"}
    assert not is_believed(fresh(), step.files["redis.crt"], START)
    assert roles(step.files["redis.crt"]) == []
    later = next_step(step.files, of_redis("demo"), START + CERTIFICATE_LIFE * 2 / 3)
    assert later
    assert later.sentence == "Renewed the certificates of Redis"
    assert is_believed(step.files, later.files["redis.crt"], START + CERTIFICATE_LIFE)
