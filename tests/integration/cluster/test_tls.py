"""Links by TLS: who is let in by certificate, and how certificates are replaced under way."""

from __future__ import annotations

import logging
import ssl
from dataclasses import replace
from pathlib import Path

import pytest

from flockmq.errors import ConfigError
from flockmq.membership.link import Link
from flockmq.membership.link_certificates import LinkCertificates, LinkFiles

from .authority import Authority
from .conftest import until
from .test_link import End


async def listening(certificates: LinkCertificates | None) -> tuple[End, tuple[str, int]]:
    end = End("listener", certificates=certificates)
    return end, ("127.0.0.1", await end.mesh.listener.listen("127.0.0.1", 0))


def shown_by_peer(link: Link) -> object:
    assert link._transport is not None
    return link._transport.get_extra_info("ssl_object").getpeercert()["serialNumber"]


async def test_links_are_tls_1_3_with_a_certificate_on_both_sides(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    listener, address = await listening(LinkCertificates(authority.files("listener")))
    dialer = End("dialer", address, certificates=LinkCertificates(authority.files("dialer")))
    dialer.mesh.start()
    await until(lambda: bool(listener.mesh.links() and dialer.mesh.links()))
    ours, theirs = dialer.mesh.links()[0], listener.mesh.links()[0]
    assert ours._transport is not None
    assert ours._transport.get_extra_info("ssl_object").version() == "TLSv1.3"
    assert shown_by_peer(ours) != shown_by_peer(theirs)
    assert await ours.request("echo", bytes(3_000_000)) == bytes(3_000_000)
    await dialer.mesh.stop()
    await until(lambda: not listener.mesh.links())
    await listener.mesh.stop()


@pytest.mark.parametrize("stranger", ["another authority", "no TLS", "TLS to a plain listener"])
async def test_strangers_are_refused_before_a_word_of_the_handshake(
    tmp_path: Path, stranger: str, caplog: pytest.LogCaptureFixture
) -> None:
    authority = Authority(tmp_path)
    (tmp_path / "other").mkdir()
    other = Authority(tmp_path / "other")
    plain = stranger == "TLS to a plain listener"
    listener, address = await listening(None if plain else LinkCertificates(authority.files("listener")))
    # It trusts our authority, so that it is our side alone that refuses.
    files = replace(other.files("stranger"), cacertfile=authority.cacertfile)
    dialer = End("dialer", address, certificates=None if stranger == "no TLS" else LinkCertificates(files))
    with caplog.at_level(logging.WARNING):
        dialer.mesh.start()
        await until(lambda: "refused 1 cluster link(s)" in caplog.text and "no cluster link to" in caplog.text)
    assert not listener.mesh.links()
    assert not dialer.mesh.links()
    assert "@0123456789abcdef" not in caplog.text
    await dialer.mesh.stop()
    await until(lambda: not listener.mesh.listener.unauthenticated)
    await listener.mesh.stop()


async def test_a_listener_of_another_authority_is_not_spoken_to(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    authority = Authority(tmp_path)
    (tmp_path / "other").mkdir()
    other = Authority(tmp_path / "other")
    listener, address = await listening(
        LinkCertificates(replace(other.files("listener"), cacertfile=authority.cacertfile))
    )
    dialer = End("dialer", address, certificates=LinkCertificates(authority.files("dialer")))
    with caplog.at_level(logging.WARNING):
        dialer.mesh.start()
        await until(lambda: "TLS: " in caplog.text and "no cluster link to" in caplog.text)
    assert not dialer.mesh.links()
    await dialer.mesh.stop()
    await listener.mesh.stop()


@pytest.mark.parametrize("side", ["dialler", "listener"])
async def test_a_replicants_certificate_makes_no_core(
    tmp_path: Path, side: str, caplog: pytest.LogCaptureFixture
) -> None:
    """It has the cluster's key, and its own certificate, and says that it is a core."""
    authority = Authority(tmp_path)
    roles = {"listener": ["core"], "dialler": ["core"], side: ["replicant"]}
    listener, address = await listening(LinkCertificates(authority.files("listener", *roles["listener"])))
    dialler = End("dialler", address, certificates=LinkCertificates(authority.files("dialler", *roles["dialler"])))
    with caplog.at_level(logging.WARNING):
        dialler.mesh.start()
        await until(lambda: "it says that it is a core, and its certificate is of a replicant" in caplog.text)
    honest, deceived = (listener, dialler) if side == "listener" else (dialler, listener)
    assert not deceived.mesh.links()
    for end in (dialler, listener):
        await end.mesh.stop()
    assert honest is not deceived


@pytest.mark.parametrize(
    ("certificate", "role"),
    [
        (["replicant"], "replicant"),
        (["core"], "core"),
        (["core"], "single"),
        (["core", "replicant"], "replicant"),
        ([], "core"),  # as those that were made for the first release
        ([], "replicant"),
    ],
)
async def test_a_certificate_of_the_role_or_of_none_is_a_nodes(
    tmp_path: Path, certificate: list[str], role: str
) -> None:
    authority = Authority(tmp_path)
    listener, address = await listening(LinkCertificates(authority.files("listener", "core")))
    files = authority.files("dialler", *certificate)
    dialler = End("dialler", address, certificates=LinkCertificates(files), role=role)
    dialler.mesh.start()
    await until(lambda: bool(listener.mesh.links() and dialler.mesh.links()))
    for end in (dialler, listener):
        await end.mesh.stop()


def replaced(files: LinkFiles, by: LinkFiles) -> None:
    """As an operator does: the same names, other bytes."""
    files.certfile.write_bytes(by.certfile.read_bytes())
    files.keyfile.write_bytes(by.keyfile.read_bytes())


async def test_an_authority_is_replaced_without_losing_a_link(tmp_path: Path) -> None:
    old = Authority(tmp_path)
    (tmp_path / "new").mkdir()
    new = Authority(tmp_path / "new")
    files = {name: old.files(name) for name in ("listener", "dialer")}
    certificates = {name: LinkCertificates(files[name]) for name in files}
    listener, address = await listening(certificates["listener"])
    dialer = End("dialer", address, certificates=certificates["dialer"])
    dialer.mesh.start()
    await until(lambda: bool(listener.mesh.links() and dialer.mesh.links()))
    first = dialer.mesh.links()[0]

    def refreshed() -> None:
        for each in certificates.values():
            each.refresh()

    old.cacertfile.write_bytes(old.pem + new.pem)
    refreshed()
    replaced(files["listener"], new.files("listener"))
    refreshed()
    second = End("second", address, certificates=certificates["dialer"])  # the old certificate, the new listener
    second.mesh.start()
    await until(lambda: bool(second.mesh.links()))
    assert shown_by_peer(second.mesh.links()[0]) != shown_by_peer(first)
    replaced(files["dialer"], new.files("dialer"))
    refreshed()
    old.cacertfile.write_bytes(new.pem)
    refreshed()
    assert dialer.mesh.links() == [first]
    assert first.up
    assert await first.request("echo", b"still") == b"still"
    first.close("the test cut it")
    await until(lambda: bool(dialer.mesh.links()))
    late = End("late", address, certificates=LinkCertificates(replace(old.files("late"), cacertfile=new.cacertfile)))
    late.mesh.start()
    await until(lambda: listener.mesh.listener.refused > 0 or listener.mesh.listener._refusal_logged_at > 0)
    assert not late.mesh.links()
    for end in (late, second, dialer, listener):
        await end.mesh.stop()


def test_files_that_can_not_be_used_are_named(tmp_path: Path) -> None:
    files = Authority(tmp_path).files("node")
    with pytest.raises(ConfigError, match=r"cluster\.keyfile: '.*gone' can't be read: No such file"):
        LinkCertificates(replace(files, keyfile=tmp_path / "gone"))
    with pytest.raises(ConfigError, match=r"cluster\.certfile: .* can't be used: "):
        LinkCertificates(replace(files, keyfile=files.cacertfile))
    (tmp_path / "empty").write_bytes(b"")
    with pytest.raises(ConfigError, match=r"cluster\.cacertfile: .* can't be used: "):
        LinkCertificates(replace(files, cacertfile=tmp_path / "empty"))


def test_a_file_that_is_just_being_replaced_leaves_what_works(tmp_path: Path) -> None:
    files = Authority(tmp_path).files("node")
    certificates = LinkCertificates(files)
    before = certificates.listening
    files.certfile.write_bytes(b"half of it")
    certificates.refresh()
    assert certificates.listening is before
    assert before.verify_mode == ssl.CERT_REQUIRED
