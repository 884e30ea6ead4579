"""One link over a real socket: what is asked, told and streamed on it, and what strangers get."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from pathlib import Path

import pytest

from flockmq import bounds
from flockmq.delivery.frames import FORWARD, forward_header
from flockmq.membership import frames
from flockmq.membership.cluster_version import ClusterVersion
from flockmq.membership.handshake import Identity
from flockmq.membership.link import Link, LinkHandlers
from flockmq.membership.link_certificates import LinkCertificates
from flockmq.membership.link_keys import LinkKeys
from flockmq.membership.link_requests import LinkLost, Refusal
from flockmq.membership.mesh import Address, Mesh

from .authority import Authority
from .conftest import KEY, until


class End:
    """One side's LinkOwner."""

    def __init__(
        self,
        name: str,
        *seeds: Address,
        certificates: LinkCertificates | None = None,
        role: str = "core",
        keys: LinkKeys | None = None,
    ) -> None:
        self.incarnation = f"{name}@0123456789abcdef"
        self.handlers = LinkHandlers()
        self.certificates = certificates
        self.mesh = Mesh(
            self, Identity(self.incarnation, role), keys or LinkKeys(KEY), ClusterVersion(), seeds, certificates
        )
        self.arrived: list[str] = []
        self.produced = 0
        self.hold = asyncio.Event()
        self.handlers.frames[FORWARD] = lambda link, body: self.arrived.append("data")
        self.handlers.frames[frames.TUNNEL] = lambda link, body: self.arrived.append(f"tunnel {body[3]}")
        self.handlers.notes["urgent"] = lambda who, body: self.arrived.append("note urgent")
        self.handlers.requests.update(echo=self.echo, hang=self.hang)
        self.handlers.streams.update(count=self.count, broken=self.broken)

    def link_up(self, link: Link) -> None:
        self.mesh.add(link)

    def link_down(self, link: Link, reason: str) -> None:
        self.mesh.remove(link)

    def link_goodbye(self, link: Link) -> None:
        self.arrived.append("goodbye")

    async def echo(self, peer: Identity, body: bytes) -> bytes:
        return body

    async def hang(self, peer: Identity, body: bytes) -> bytes:
        await self.hold.wait()
        return b""

    async def count(self, body: bytes) -> AsyncGenerator[bytes, None]:
        for n in range(int(body)):
            self.produced += 1
            yield b"%d" % n

    async def broken(self, body: bytes) -> AsyncGenerator[bytes, None]:
        yield body
        raise Refusal("broken", "it ends badly")


@pytest.fixture(params=["plain", "tls"])
async def ends(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[tuple[End, End, Link]]:
    certificates = LinkCertificates(Authority(tmp_path).files("node")) if request.param == "tls" else None
    listener = End("listener", certificates=certificates)
    port = await listener.mesh.listener.listen("127.0.0.1", 0)
    dialer = End("dialer", ("127.0.0.1", port), certificates=certificates)
    dialer.mesh.start()
    await until(lambda: bool(listener.mesh.links() and dialer.mesh.links()))
    (link,) = dialer.mesh.links()
    yield dialer, listener, link
    await dialer.mesh.stop()
    await listener.mesh.stop()


async def test_requests_are_answered_each_with_its_own(ends: tuple[End, End, Link]) -> None:
    _, _, link = ends
    answers = await asyncio.gather(*(link.request("echo", b"%d" % n) for n in range(500)))
    assert answers == [b"%d" % n for n in range(500)]
    with pytest.raises(Refusal, match="doesn't serve such") as refused:
        await link.request("such", b"")
    assert refused.value.code == "unavailable"


async def test_a_request_whose_link_is_lost_says_so_and_the_dialer_comes_back(ends: tuple[End, End, Link]) -> None:
    dialer, listener, link = ends
    request = asyncio.ensure_future(link.request("hang", b""))
    await asyncio.sleep(0)
    listener.mesh.links()[0].close("the test cut it")
    with pytest.raises(LinkLost, match="listener@"):
        await request
    await until(lambda: bool(dialer.mesh.links()))
    assert await dialer.mesh.links()[0].request("echo", b"again") == b"again"


async def test_a_stream_waits_for_its_reader(ends: tuple[End, End, Link]) -> None:
    _, listener, link = ends
    stream = link.stream("count", b"1000")
    assert await anext(stream) == b"0"
    assert await link.request("echo", b"between") == b"between"
    assert listener.produced <= bounds.LINK_STREAM_CREDIT_ITEMS + 2
    assert [item async for item in stream] == [b"%d" % n for n in range(1, 1000)]


async def test_a_stream_may_break_or_be_left(ends: tuple[End, End, Link]) -> None:
    _, listener, link = ends
    with pytest.raises(Refusal, match="it ends badly"):
        _ = [item async for item in link.stream("broken", b"3")]
    stream = link.stream("count", b"1000")
    await anext(stream)
    await stream.aclose()
    await until(lambda: not listener.mesh.links()[0]._requests._senders)
    assert listener.produced < 1000


async def test_control_overtakes_data_that_waits_for_a_slow_reader(ends: tuple[End, End, Link]) -> None:
    _, listener, link = ends
    transport = listener.mesh.links()[0]._transport
    assert transport is not None
    transport.pause_reading()
    chunk = bytes(bounds.LINK_FORWARD_FRAME_BYTES)
    for _ in range(256):
        link.send_data([forward_header(5, len(chunk)), chunk], len(chunk))
    await until(lambda: link._paused)
    assert link.data_bytes > 128 * len(chunk)
    link.note("urgent", b"")
    transport.resume_reading()
    await until(lambda: len(listener.arrived) == 257)
    assert listener.arrived.index("note urgent") < 128


async def test_what_waits_arrives_before_the_goodbye_though_the_peer_has_more_to_say(
    ends: tuple[End, End, Link], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds, "LINK_LEAVE_MAX_S", 60.0)
    dialer, listener, link = ends
    (other,) = listener.mesh.links()
    transport = other._transport
    assert transport is not None
    transport.pause_reading()
    chunk = bytes(bounds.LINK_FORWARD_FRAME_BYTES)
    frame = [forward_header(5, len(chunk)), chunk]
    for _ in range(64):
        link.send_data(frame[:], len(chunk))
    await until(lambda: link._paused)
    leaving = asyncio.ensure_future(dialer.mesh.stop())
    await until(lambda: link.reason == "this node leaves")
    for _ in range(64):
        other.send_data(frame[:], len(chunk))
    link.note("late", b"")
    await until(lambda: other.data_bytes == 0)
    transport.resume_reading()
    await leaving
    assert listener.arrived == ["data"] * 64 + ["goodbye"]
    assert not dialer.arrived


async def test_two_nodes_that_leave_at_the_same_time_wait_for_nobody(
    ends: tuple[End, End, Link], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds, "LINK_LEAVE_MAX_S", 60.0)
    dialer, listener, _ = ends
    await asyncio.wait_for(asyncio.gather(dialer.mesh.stop(), listener.mesh.stop()), 20)


async def test_a_peer_that_does_not_read_holds_up_nobody_who_leaves(
    ends: tuple[End, End, Link], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds, "LINK_LEAVE_MAX_S", 0.1)
    dialer, listener, link = ends
    transport = listener.mesh.links()[0]._transport
    assert transport is not None
    transport.pause_reading()
    await asyncio.wait_for(dialer.mesh.stop(), 20)
    assert await asyncio.wait_for(link.closed, 20) == "this node leaves"
    transport.resume_reading()


async def test_tunnels_and_messages_take_turns(ends: tuple[End, End, Link]) -> None:
    _, listener, link = ends
    chunk = bytes(bounds.LINK_FORWARD_FRAME_BYTES)
    for _ in range(64):
        link.send_data([forward_header(5, len(chunk)), chunk], len(chunk))
    for tunnel_id in range(32):
        link.send_tunnelled([frames.id_header(frames.TUNNEL, tunnel_id, len(chunk)), chunk], len(chunk))
    await until(lambda: len(listener.arrived) == 96)
    assert listener.arrived[63] == "tunnel 31"
    assert [what for what in listener.arrived if what != "data"] == [f"tunnel {n}" for n in range(32)]
    assert link.data_bytes == link.tunnelled_bytes == 0


async def test_what_is_no_frame_ends_the_link_with_a_reason(ends: tuple[End, End, Link]) -> None:
    _, listener, link = ends
    (other,) = listener.mesh.links()
    link.send(frames.frame(99, b""))
    assert await other.closed == "it sent a frame of kind 99"


@pytest.mark.parametrize("greeting", [b"GET / HTTP/1.1\r\n\r\n", frames.frame(frames.GREETING, bytes(513)), bytes(8)])
async def test_strangers_are_closed_by_their_first_wrong_byte(ends: tuple[End, End, Link], greeting: bytes) -> None:
    _, listener, _ = ends
    reader, writer = await asyncio.open_connection("127.0.0.1", listener.mesh.listener.port)
    writer.write(greeting)
    await asyncio.wait_for(reader.read(), 10)
    writer.close()
    await until(lambda: not listener.mesh.listener.unauthenticated)


async def test_strangers_who_say_nothing_make_room_for_the_next(ends: tuple[End, End, Link]) -> None:
    _, listener, link = ends
    address = ("127.0.0.1", listener.mesh.listener.port)
    silent = [await asyncio.open_connection(*address) for _ in range(bounds.LINK_HANDSHAKES_MAX)]
    await until(lambda: len(listener.mesh.listener.unauthenticated) == bounds.LINK_HANDSHAKES_MAX)
    honest = End("honest", address, certificates=listener.certificates)
    honest.mesh.start()
    await until(lambda: bool(honest.mesh.links()))
    (end,) = await asyncio.gather(silent[0][0].read(), return_exceptions=True)
    assert end == b"" or isinstance(end, ConnectionError)
    await until(lambda: not listener.mesh.listener.unauthenticated)
    assert link.up
    for _, writer in silent:
        writer.close()
    await honest.mesh.stop()


async def test_a_handshake_that_began_as_another_incarnation_brings_no_link(
    ends: tuple[End, End, Link], caplog: pytest.LogCaptureFixture
) -> None:
    _, listener, _ = ends
    former, listener.incarnation = listener.incarnation, "listener@fedcba9876543210"
    late = End("late", ("127.0.0.1", listener.mesh.listener.port), certificates=listener.certificates)
    late.mesh.start()
    await until(lambda: f"this node goes on as {listener.incarnation}" in caplog.text)
    listener.mesh.rename(Identity(listener.incarnation, "core"))
    await until(lambda: late.mesh.link_of(listener.incarnation) is not None)
    assert late.mesh.link_of(former) is None
    await late.mesh.stop()


async def test_the_key_is_replaced_step_by_step_and_who_holds_the_old_one_is_refused(tmp_path: Path) -> None:
    old, new = KEY, "the key that comes after it"
    file = tmp_path / "key"
    file.write_text(old)
    listening = LinkKeys(old, file)
    listener = End("listener", keys=listening)
    address = ("127.0.0.1", await listener.mesh.listener.listen("127.0.0.1", 0))

    async def gets_in(name: str, key: str) -> bool:
        dialler = End(name, address, keys=LinkKeys(key))
        accepting = listener.mesh.listener
        turned_away = accepting.refused, accepting._refusal_logged_at
        dialler.mesh.start()
        await until(
            lambda: bool(dialler.mesh.links()) or (accepting.refused, accepting._refusal_logged_at) != turned_away
        )
        is_in = bool(dialler.mesh.links())
        await dialler.mesh.stop()
        await until(lambda: not listener.mesh.links())
        return is_in

    for number, (text, is_old_taken, is_new_taken) in enumerate(
        [(old, True, False), (f"{old}\n{new}", True, True), (f"{new}\n{old}", True, True), (new, False, True)]
    ):
        file.write_text(text)
        listening.refresh()
        assert await gets_in(f"old-{number}", old) is is_old_taken
        assert await gets_in(f"new-{number}", new) is is_new_taken
    await listener.mesh.stop()
