"""TLS on the management port of a real node, asked by `flockmq ctl`; and certificates that are replaced under way."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from integration.auth.conftest import Configured
from integration.broker.conftest import Node, eventually
from integration.ctl import run_ctl
from unit.broker.transport.pki import Pki


@pytest.fixture
def pki(tmp_path: Path) -> Pki:
    (tmp_path / "pki").mkdir()
    return Pki(tmp_path / "pki")


def started(fleet: Configured, pki: Pki) -> Node:
    certificate, key = pki.server("localhost", "127.0.0.1")
    fleet.key_file.write_text("an integration test's API key, 32 letters")
    fleet.configure(f'certfile = "{certificate}"\nkeyfile = "{key}"\n')
    return fleet.core("core-0")


def ctl(node: Node, scheme: str, *arguments: str, host: str = "localhost") -> tuple[int, str, str]:
    done = run_ctl(node.management, *arguments, at=f"{scheme}://{host}")
    return done.returncode, done.stdout, done.stderr


def test_the_port_speaks_tls_to_who_trusts_it(fleet: Configured, pki: Pki) -> None:
    node = started(fleet, pki)
    trust = ("--cacert", str(pki.folder / "ca.pem"))
    assert ctl(node, "https", *trust, "cluster", "status")[0] == 0
    assert ctl(node, "https", *trust, "--api-key-file", str(fleet.key_file), "users", "list")[:2] == (0, "")
    pin = ("--pin", str(pki.folder / "server.pem"))
    assert ctl(node, "https", *pin, "cluster", "status", host="127.1")[0] == 0
    code, _, said = ctl(node, "https", "--pin", str(pki.folder / "ca.pem"), "cluster", "status")
    assert code == 1
    assert "shows another certificate than --pin names" in said
    code, _, said = ctl(node, "https", "cluster", "status")
    assert code == 1
    assert "certificate verify failed" in said
    code, _, said = ctl(node, "http", "cluster", "status")
    assert code == 1
    assert "can't be asked" in said
    code, _, said = ctl(node, "https", "--cacert", "/nowhere.pem", "cluster", "status")
    assert (code, said) == (2, "flockmq: error: --cacert: '/nowhere.pem' can't be used: No such file or directory\n")


def test_a_certificate_that_was_replaced_is_shown(fleet: Configured, pki: Pki) -> None:
    node = started(fleet, pki)
    first = shown(node, pki)
    pki.server("localhost", "127.0.0.1")
    eventually(lambda: shown(node, pki) != first, "the new one is shown")
    (pki.folder / "server.pem").write_text("nonsense")
    second = shown(node, pki)
    eventually(lambda: "the certificate from before stays" in node.command.errors(), "it says that it can't be used")
    assert shown(node, pki) == second


def shown(node: Node, pki: Pki) -> bytes:
    """The certificate that a handshake without a server name gets."""
    context = pki.trusting()
    context.check_hostname = False
    plain = socket.create_connection(("127.0.0.1", node.management), timeout=30)
    with context.wrap_socket(plain) as connection:
        certificate = connection.getpeercert(binary_form=True)
    assert certificate is not None
    return certificate
