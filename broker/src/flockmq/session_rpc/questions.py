"""Requests of this node's connections to the owners of their sessions. Each request is repeated until it is answered.

Invariants:
- An owner processes the requests of a connection in order: each request names the one before it. The numbers of QoS 2
  messages are assigned in that order, so none is taken for a duplicate.
- SUBSCRIBE and UNSUBSCRIBE answers are passed on in the order of the requests. So after a failure only the newest
  requests are unanswered, and only these are sent again. Repeating them cannot undo an older request.
- A request ends with its connection.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from flockmq.routing.slots import slot_of
from flockmq.session_rpc import messages
from flockmq.session_rpc.messages import Answered
from flockmq.session_rpc.notes import Notes


class _Question:
    """`asked`: the core that has the request; "": none. `answer`: received, and waits for the answers of earlier
    requests; b"": not yet received.
    """

    __slots__ = ("answer", "answered", "asked", "client_id", "question", "token")

    def __init__(self, client_id: bytes, token: int, question: messages.Question, answered: Answered) -> None:
        self.client_id = client_id
        self.token = token
        self.question = question
        self.answered = answered
        self.asked = ""
        self.answer = b""


class Questions:
    """One per node. `is_there`: True while the connection (client id, token) exists."""

    def __init__(self, notes: Notes, is_there: Callable[[bytes, int], bool]) -> None:
        self._notes = notes
        self._is_there = is_there
        self._last_number = 0
        self._questions: dict[int, _Question] = {}
        self._asked_by: dict[int, set[int]] = {}
        """Token → numbers of its requests."""
        self._unasked: set[int] = set()
        """Tokens of connections with requests that must be sent again; their later requests wait."""

    def __len__(self) -> int:
        return len(self._questions)

    def ask(self, client_id: bytes, token: int, question: messages.Question, answered: Answered) -> None:
        """`answered` gets the answer once; b"" if the connection ends first."""
        self._put(_Question(client_id, token, question, answered))

    def _put(self, question: _Question) -> None:
        if not self._is_there(question.client_id, question.token):
            question.answered(b"")  # The connection ended before the request could be sent, so `end_all` won't end it.
            return
        self._last_number += 1
        number = self._last_number
        self._questions[number] = question
        question.answer = b""
        unanswered = self._asked_by.setdefault(question.token, set())
        behind = max(unanswered, default=0)
        unanswered.add(number)
        question.asked = "" if question.token in self._unasked else self._notes.owner(slot_of(question.client_id))
        if not question.asked:
            self._unasked.add(question.token)
        else:
            item = (number, behind, question.client_id, messages.pack_token(question.token), question.question)
            self._notes.send(question.asked, messages.ASK, item)

    def replied(self, _: str, reply: messages.Reply) -> None:
        """An owner answered; b"": it can't answer."""
        number, answer = reply
        question = self._questions.get(number)
        if question is None:
            return
        if not answer:
            self._doubt(question)
            return
        if isinstance(question.question, messages.ReceiveQuestion):
            self._end(number)
            question.answered(answer)
            return
        question.answer = answer
        for first in sorted(self._asked_by[question.token]):
            waiting = self._questions.get(first)
            if waiting is None or isinstance(waiting.question, messages.ReceiveQuestion):
                continue
            if not waiting.answer:
                return
            self._end(first)
            waiting.answered(waiting.answer)

    def end_all(self, token: int) -> None:
        """The connection ended."""
        for number in sorted(self._asked_by.get(token, ())):
            self._end(number).answered(b"")
        self._unasked.discard(token)

    def unsent(self, incarnation: str) -> None:
        """There was no link for requests to this core."""
        for question in self._questions.values():
            if question.asked == incarnation:
                self._doubt(question)

    def slots_moved(self, slots: set[int]) -> None:
        """These slots have new owners, or their owners may have missed requests."""
        self._put_again([n for n, asked in self._questions.items() if slot_of(asked.client_id) in slots])

    def ask_again(self) -> None:
        """Send the requests that no core has."""
        self._put_again([n for n, question in self._questions.items() if question.token in self._unasked])

    def _doubt(self, question: _Question) -> None:
        question.asked = ""
        self._unasked.add(question.token)

    def _put_again(self, numbers: Iterable[int]) -> None:
        """Send again in order; the numbers give the order."""
        again = [self._end(number) for number in sorted(numbers)]
        self._unasked.difference_update(question.token for question in again)
        for question in again:
            self._put(question)

    def _end(self, number: int) -> _Question:
        """Remove the request; a late answer to its number is ignored."""
        question = self._questions.pop(number)
        numbers = self._asked_by[question.token]
        numbers.discard(number)
        if not numbers:
            del self._asked_by[question.token]
        return question
