"""Packets of one host that are held back for a while: iptables queues them (NFQUEUE), and we let them go in time.

The kernel keeps the packets, in their order; it tells us the number of each, and we answer with the highest number that
may go. A packet that finds no room in the queue is lost, as on any link. (`tc netem` would do the same; not every
kernel has it.)
"""

from __future__ import annotations

import asyncio
import ctypes
import errno
import os
import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

QUEUE: Final = 0
"""Its number; each host's network counts its own."""
QUEUE_MAX_PACKETS: Final = 65_536
RECEIVE_MAX_BYTES: Final = 16 * 1024 * 1024
"""What the kernel tells us of so many packets, with room to spare."""
MESSAGE_MAX_BYTES: Final = 8192

_NETLINK_NETFILTER: Final = 12
_CLONE_NEWNET: Final = 0x40000000
_SO_RCVBUFFORCE: Final = 33
_SUBSYSTEM_QUEUE: Final = 3 << 8
_PACKET, _CONFIG, _VERDICT_BATCH = _SUBSYSTEM_QUEUE, _SUBSYSTEM_QUEUE | 2, _SUBSYSTEM_QUEUE | 3
_ERROR: Final = 2
_REQUEST, _ACK = 1, 4
_CFG_CMD, _CFG_PARAMS, _CFG_QUEUE_MAXLEN, _VERDICT_HDR = 1, 2, 3, 2
_BIND, _COPY_META, _ACCEPT = 1, 1, 1
_HEADER: Final = struct.Struct("=IHHIIBxH")
"""nlmsghdr and nfgenmsg; the queue's number is in network byte order."""
_FIRST_ATTRIBUTE: Final = _HEADER.size + 4


class Delay:
    """Raises OSError where the kernel has no such queues."""

    def __init__(self, host: str, delay_s: float) -> None:
        self._delay_s = delay_s
        self._loop = asyncio.get_running_loop()
        self._newest = 0
        with _network_of(host):
            self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETLINK_NETFILTER)
        try:
            self._socket.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, RECEIVE_MAX_BYTES)
            for kind, value in (
                (_CFG_CMD, struct.pack("!BxH", _BIND, 0)),
                (_CFG_PARAMS, struct.pack("!IB", 0, _COPY_META)),
                (_CFG_QUEUE_MAXLEN, struct.pack("!I", QUEUE_MAX_PACKETS)),
            ):
                self._configure(kind, value)
        except OSError:
            self._socket.close()
            raise
        self._socket.setblocking(False)
        self._loop.add_reader(self._socket.fileno(), self._read)

    def close(self) -> None:
        """When nothing is queued any more: what is there goes."""
        self._read()
        self._loop.remove_reader(self._socket.fileno())
        self._let_go(self._newest)
        self._socket.close()

    def _read(self) -> None:
        before = self._newest
        while True:
            try:
                message = self._socket.recv(MESSAGE_MAX_BYTES)
            except BlockingIOError:
                break
            except OSError as error:
                if error.errno != errno.ENOBUFS:
                    raise
                continue
            if _HEADER.unpack_from(message)[1] == _PACKET:
                self._newest = struct.unpack_from("!I", message, _FIRST_ATTRIBUTE)[0]
        if self._newest != before:
            self._loop.call_later(self._delay_s, self._let_go, self._newest)

    def _let_go(self, newest: int) -> None:
        """This packet, and all before it."""
        if self._socket.fileno() >= 0:
            self._socket.send(_message(_VERDICT_BATCH, _REQUEST, _VERDICT_HDR, struct.pack("!II", _ACCEPT, newest)))

    def _configure(self, kind: int, value: bytes) -> None:
        self._socket.send(_message(_CONFIG, _REQUEST | _ACK, kind, value))
        answer = self._socket.recv(MESSAGE_MAX_BYTES)
        code = -struct.unpack_from("=i", answer, 16)[0]
        if _HEADER.unpack_from(answer)[1] == _ERROR and code:
            raise OSError(code, os.strerror(code), "NFQUEUE")


def _message(type: int, flags: int, kind: int, value: bytes) -> bytes:
    attribute = struct.pack("=HH", 4 + len(value), kind) + value
    attribute += bytes(-len(attribute) % 4)
    return _HEADER.pack(_HEADER.size + len(attribute), type, flags, 0, 0, 0, socket.htons(QUEUE)) + attribute


@contextmanager
def _network_of(host: str) -> Iterator[None]:
    """What is opened inside is opened on this host's network."""
    setns = ctypes.CDLL(None, use_errno=True).setns
    with Path("/proc/thread-self/ns/net").open() as ours, Path("/run/netns", host).open() as theirs:
        if setns(theirs.fileno(), _CLONE_NEWNET):
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code), host)
        try:
            yield
        finally:
            setns(ours.fileno(), _CLONE_NEWNET)
