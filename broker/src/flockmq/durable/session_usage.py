"""What one session uses of its user's quota; counted from its begin, and again after each change. No I/O."""

from __future__ import annotations

from mypy_extensions import mypyc_attr

from flockmq.bounds import QUEUED_MESSAGE_BYTES
from flockmq.durable.incoming import Incoming
from flockmq.durable.message_queue import MessageQueue
from flockmq.durable.session_record import SessionRecord
from flockmq.quotas import Usage


@mypyc_attr(acyclic=True)
class SessionUsage:
    """`usage`: of the session's user; None: it has no quota."""

    __slots__ = ("_counted_bytes", "_incoming", "_is_counted", "_messages", "_record", "usage")

    def __init__(self, record: SessionRecord, messages: MessageQueue, incoming: Incoming) -> None:
        self.usage: Usage | None = None
        self._record = record
        self._messages = messages
        self._incoming = incoming
        self._is_counted: bool = False
        self._counted_bytes: int = 0

    def begin(self) -> None:
        """The session exists from now on."""
        if self.usage is not None and not self._is_counted:
            self._is_counted = True
            self.usage.began()
            self.count()

    def count(self) -> None:
        """Report a changed size to the user's usage."""
        if self._is_counted and self.usage is not None:
            held = self.stored_bytes()
            if held != self._counted_bytes:
                self.usage.queued(held - self._counted_bytes)
                self._counted_bytes = held

    def end(self) -> None:
        if self._is_counted and self.usage is not None:
            self._is_counted = False
            self.usage.queued(-self._counted_bytes)
            self._counted_bytes = 0
            self.usage.ended()

    def stored_bytes(self) -> int:
        """Messages, the will, names, and answered requests."""
        return self._record.stored_bytes() + self._messages.stored_bytes() + self._incoming.stored_bytes()

    def is_over(self, packet_bytes: int, *, is_away: bool) -> bool:
        """True if the user's sessions would exceed the quota with one more packet."""
        if self.usage is None:
            return False
        self.count()
        return not self.usage.may_queue(packet_bytes + QUEUED_MESSAGE_BYTES, is_away=is_away)
