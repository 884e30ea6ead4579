"""The network of a simulation: hosts by address, and connections whose bytes arrive later, in order, or not at all.

Paths have two directions. What is sent on one that is cut waits, as TCP waits with what it sends again, and arrives
some time after the path is whole: the longer the cut was, the later. Over a cut path nobody hears of an end.

What always holds: a connection's items arrive in their order and once; what a process is given while it stands still it
gets when it goes on; how much is under way is bounded, and whoever sends more is told to wait.
"""

from __future__ import annotations

import asyncio
import contextvars
import random
from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from typing import Any, Final

from simulation.loop import Process, SimulatedLoop, current

Address = tuple[str, int]
Path = tuple[str, str]
"""Of addresses: where from, where to."""

DELAY_S: Final = (0.0001, 0.001)
RESEND_MIN_S: Final = 0.2
RESEND_MAX_S: Final = 5.0
"""TCP waits longer and longer until it sends again."""
SYN_AGAIN_S: Final = 1.0
BUFFERED_MAX_BYTES: Final = 512 * 1024
"""What the kernels of both ends hold for one direction of a connection."""


class Network:
    def __init__(self, loop: SimulatedLoop, rng: random.Random) -> None:
        self.loop = loop
        self.random = rng
        self.listeners: dict[Address, Listener] = {}
        self._slow: dict[str | Path, float] = {}
        self._lossy: dict[str, float] = {}
        self._is_rough = False
        self._cuts: defaultdict[Path, int] = defaultdict(int)
        self._cut_since: dict[Path, float] = {}
        self._ends: dict[int, End] = {}
        self._made = 0
        self.trace = 0
        """A hash of when something arrived where."""
        self._port = 40_000

    # --- faults ---

    def cut(self, source: str, target: str) -> None:
        """Nothing that `source` sends comes to `target` any more; as often as it is cut it must be mended."""
        self._cuts[source, target] += 1
        self._cut_since.setdefault((source, target), self.loop.time())

    def mend(self, source: str, target: str) -> None:
        path = source, target
        self._cuts[path] -= 1
        if self._cuts[path]:
            return
        del self._cuts[path]
        cut_s = self.loop.time() - self._cut_since.pop(path)
        for end in list(self._ends.values()):
            if end.path == path:
                end.resend(min(max(cut_s, RESEND_MIN_S), RESEND_MAX_S))

    def slow_down(self, which: str | Path, delay_s: float) -> None:
        """One path, or all of a host; 0: not any more."""
        self._slow[which] = delay_s
        self._is_rough = any(self._slow.values()) or any(self._lossy.values())

    def lose(self, host: str, percent: float) -> None:
        """So many of what goes over any of its paths must be sent again."""
        self._lossy[host] = percent
        self._is_rough = any(self._slow.values()) or any(self._lossy.values())

    def is_cut(self, path: Path) -> bool:
        return path in self._cuts

    def died(self, process: Process) -> None:
        """A process was killed: its kernel ends its connections, and listens for it no more."""
        for address in [address for address, listener in self.listeners.items() if listener.process is process]:
            del self.listeners[address]
        for end in list(self._ends.values()):
            if end.process is process:
                end.abort()

    # --- connections ---

    def listen(self, address: Address, process: Process, accept: Callable[[End], None]) -> Listener:
        """`accept` is called for each that comes, in the process. Raises OSError."""
        if address in self.listeners:
            raise OSError(98, f"Address already in use: {address[0]}:{address[1]}")
        listener = self.listeners[address] = Listener(self, address, process, accept)
        return listener

    async def bind(self, host: str, port: int) -> Any:
        """As sockets of links are: the end is waited for."""
        process = current.get()
        assert process is not None
        waiting = Waiting()
        waiting.listener = self.listen((host or process.address, port), process, waiting.came)
        return waiting

    async def dial(self, address: Address) -> End:
        """A connection from the process that runs. Raises OSError; waits for as long as the path is cut."""
        process = current.get()
        assert process is not None, f"nobody dials {address}"
        there, back = (process.address, address[0]), (address[0], process.address)
        await asyncio.sleep(self.delay_s(there) + self.delay_s(back))
        while self.is_cut(there) or self.is_cut(back):  # noqa: ASYNC110 - simulated time
            await asyncio.sleep(SYN_AGAIN_S)
        listener = self.listeners.get(address)
        if listener is None:
            raise ConnectionRefusedError(111, f"Connection refused: {address[0]}:{address[1]}")
        self._port = self._port % 60_000 + 1
        near = End(self, process, there, (process.address, self._port), address)
        far = End(self, listener.process, back, address, near.address)
        near.peer, far.peer = far, near
        for end in (near, far):
            self._made += 1
            end.number = self._made
            self._ends[end.number] = end
        self.loop.call_soon(listener.accept, far, context=listener.process.context)
        return near

    async def connect(self, factory: Callable[[], asyncio.BaseProtocol], address: Address) -> tuple[Any, Any]:
        """As an event loop's `create_connection`."""
        end = await self.dial(address)
        protocol = factory()
        return Transport(end, protocol), protocol

    def delay_s(self, path: Path) -> float:
        least_s, most_s = DELAY_S
        delay = least_s + (most_s - least_s) * self.random.random()
        if self._is_rough:
            delay += self._slow.get(path, 0.0)
            for host in path:
                delay += self._slow.get(host, 0.0)
                again_s = RESEND_MIN_S
                while self.random.uniform(0, 100) < self._lossy.get(host, 0.0) and again_s < RESEND_MAX_S:
                    delay += again_s
                    again_s *= 2
        return delay

    def gone(self, end: End) -> None:
        self._ends.pop(end.number, None)


class Listener:
    def __init__(self, network: Network, address: Address, process: Process, accept: Callable[[End], None]) -> None:
        self.network = network
        self.address = address
        self.process = process
        self.accept = accept

    def close(self) -> None:
        if self.network.listeners.get(self.address) is self:
            del self.network.listeners[self.address]


class End:
    """One end of a connection. Whoever has it sets `received(item)`, `ended()` and perhaps `has_room()`, which run in
    its process; what came before is kept for them."""

    def __init__(self, network: Network, process: Process, path: Path, address: Address, peer_address: Address) -> None:
        self.network = network
        self.process = process
        self.context: contextvars.Context = process.context
        self.path = path
        self.address = address
        self.peer_address = peer_address
        self.number = 0
        self.peer: End = self
        self.is_closed = False
        self.unread_bytes = 0
        """Sent, and not taken by the other end."""
        self.has_room: Callable[[], None] | None = None
        self._received: Callable[[Any], None] | None = None
        self._ended: Callable[[], None] | None = None
        self._is_reading = True
        self._early: deque[tuple[Any, int]] = deque()
        self._over = False
        self._arrives_at = 0.0
        self._held: list[tuple[Any, int] | None] = []
        """While the path is cut; None: the end."""

    def serve(self, received: Callable[[Any], None], ended: Callable[[], None]) -> None:
        self._received, self._ended = received, ended
        self._take_early()

    def send(self, item: Any, size: int = 0) -> None:
        if self.is_closed:
            return
        self.unread_bytes += size
        self._put((item, size))

    def close(self) -> None:
        """The other end hears of it behind all that was sent; this end hears nothing any more."""
        if not self.is_closed:
            self.is_closed = True
            self._put(None)
            self._unless_held()

    abort = close

    def pause(self) -> None:
        self._is_reading = False

    def go_on(self) -> None:
        self._is_reading = True
        self._take_early()

    def resend(self, after_s: float) -> None:
        """The path is whole again."""
        held, self._held = self._held, []
        self._arrives_at = max(self._arrives_at, self.network.loop.time() + self.network.random.uniform(0, after_s))
        for each in held:
            self._put(each)
        if self.is_closed:
            self._unless_held()

    def _unless_held(self) -> None:
        """It is forgotten when the network needn't send anything of it again."""
        if not self._held:
            self.network.gone(self)

    def _put(self, each: tuple[Any, int] | None) -> None:
        network = self.network
        if self._held or network.is_cut(self.path):
            self._held.append(each)
            return
        loop = network.loop
        arrives_at = self._arrives_at = max(self._arrives_at, loop.time() + network.delay_s(self.path))
        network.trace = hash((network.trace, self.number, arrives_at))
        peer = self.peer
        loop.call_at(arrives_at, peer._arrived, each, context=peer.context)

    def _arrived(self, each: tuple[Any, int] | None) -> None:
        if self.is_closed:
            return
        if self._early or self._received is None or not self._is_reading:
            if each is None:
                self._over = True
            else:
                self._early.append(each)
            if each is not None or self._received is None or self._early:
                return
        if each is None:
            self._end()
        else:
            self._give(each)

    def _take_early(self) -> None:
        while self._early and self._is_reading and not self.is_closed:
            self._give(self._early.popleft())
        if self._over and not self._early and not self.is_closed:
            self._end()

    def _give(self, each: tuple[Any, int]) -> None:
        item, size = each
        peer = self.peer
        was = peer.unread_bytes
        peer.unread_bytes -= size
        if was > BUFFERED_MAX_BYTES // 2 >= peer.unread_bytes and peer.has_room is not None and not peer.is_closed:
            self.network.loop.call_later(self.network.delay_s(self.path), peer.has_room, context=peer.context)
        assert self._received is not None
        self._received(item)

    def _end(self) -> None:
        self.is_closed = True
        self.network.gone(self)
        if self._ended is not None:
            self._ended()


class Waiting:
    """A listening socket whose connections are asked for one by one."""

    listener: Listener

    def __init__(self) -> None:
        self._came: deque[End] = deque()
        self._asked: deque[asyncio.Future[None]] = deque()

    def came(self, end: End) -> None:
        self._came.append(end)
        while self._asked:
            asked = self._asked.popleft()
            if not asked.done():
                asked.set_result(None)
                break

    async def accept(self) -> tuple[Accepted, Address]:
        while not self._came:
            asked = asyncio.get_running_loop().create_future()
            self._asked.append(asked)
            await asked
        end = self._came.popleft()
        return Accepted(end), end.peer_address

    def getsockname(self) -> Address:
        return self.listener.address

    def close(self) -> None:
        self.listener.close()
        for end in self._came:
            end.abort()


class Accepted:
    """What `accept` gives: a socket that has no protocol yet."""

    def __init__(self, end: End) -> None:
        self._end = end

    def accepted(self, factory: Callable[[], asyncio.BaseProtocol]) -> tuple[Transport, asyncio.BaseProtocol]:
        protocol = factory()
        return Transport(self._end, protocol), protocol


class Transport(asyncio.Transport):
    """An end for an asyncio protocol."""

    def __init__(self, end: End, protocol: Any) -> None:
        super().__init__()
        self._end = end
        self._protocol = protocol
        self._high, self._low = 64 * 1024, 16 * 1024
        self._is_paused = False
        end.context = contextvars.copy_context()
        end.has_room = self._has_room
        protocol.connection_made(self)
        end.serve(protocol.data_received, self._lost)

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return {"peername": self._end.peer_address, "sockname": self._end.address}.get(name, default)

    def is_closing(self) -> bool:
        return self._end.is_closed

    def write(self, data: Any) -> None:
        self._end.send(bytes(data), len(data))
        if not self._is_paused and self.get_write_buffer_size() > self._high:
            self._is_paused = True
            self._protocol.pause_writing()

    def writelines(self, parts: Sequence[Any]) -> None:  # type: ignore[override]
        self.write(b"".join(parts))

    def get_write_buffer_size(self) -> int:
        return max(0, self._end.unread_bytes - BUFFERED_MAX_BYTES)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._high = 64 * 1024 if high is None else high
        self._low = self._high // 4 if low is None else low

    def pause_reading(self) -> None:
        self._end.pause()

    def resume_reading(self) -> None:
        self._end.go_on()

    def close(self) -> None:
        self._finish(self._end.close)

    def abort(self) -> None:
        self._finish(self._end.abort)

    def _finish(self, how: Callable[[], None]) -> None:
        if not self._end.is_closed:
            how()
            self._end.network.loop.call_soon(self._protocol.connection_lost, None)

    def _lost(self) -> None:
        self._protocol.connection_lost(None)

    def _has_room(self) -> None:
        if self._is_paused and not self._end.is_closed:
            self._is_paused = False
            self._protocol.resume_writing()
