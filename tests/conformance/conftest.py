"""One real node for all conformance tests; each test uses client ids and topics of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from conformance.statement import MARK
from conformance.wire import CONNACK, V5, V311, Properties, Will, Wire, connect
from integration.dev.commands import Commands


@pytest.fixture(scope="package")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    commands = Commands()
    try:
        _, ports = commands.start_node("--data-dir", str(tmp_path_factory.mktemp("node")))
        yield ports["mqtt"]
    finally:
        commands.end_all()


class Clients:
    """Opens connections to the node, and closes what a test leaves open."""

    def __init__(self, port: int, name: str) -> None:
        self.port = port
        self.name = name
        self._opened: list[Wire] = []

    def opened(self, version: int = V5) -> Wire:
        """A TCP connection on which nothing was sent."""
        wire = Wire(self.port, version)
        self._opened.append(wire)
        return wire

    def __call__(
        self,
        name: str = "client",
        version: int = V5,
        *,
        clean: bool = True,
        keep_alive_s: int = 0,
        properties: Properties | None = None,
        will: Will | None = None,
        session_present: int = 0,
    ) -> Wire:
        """Connected under a client id that no other test has, with the answer checked."""
        wire = self.opened(version)
        wire.send(
            connect(
                version,
                self.id(name),
                clean=clean,
                keep_alive_s=keep_alive_s,
                properties=properties,
                will=will,
            )
        )
        connack = wire.expect(CONNACK)
        assert (connack.reason, connack.session_present) == (0, session_present)
        return wire

    def id(self, name: str) -> str:
        return f"{self.name}-{name}"

    def close(self) -> None:
        for wire in self._opened:
            wire.socket.close()


@pytest.fixture
def client(port: int, request: pytest.FixtureRequest) -> Iterator[Clients]:
    clients = Clients(port, request.node.name)
    yield clients
    clients.close()


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> Callable[[str], str]:
    """A topic or filter below one that no other test has."""
    return lambda rest: f"{request.node.name}/{rest}"


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "version" in metafunc.fixturenames:
        levels = {5: V5, 311: V311}
        held = getattr(metafunc.function, MARK)
        metafunc.parametrize("version", [levels[version] for version in held])
