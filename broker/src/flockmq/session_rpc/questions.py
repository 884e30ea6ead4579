"""What connections ask of their sessions, at the owners of these: each question goes again until it was answered.

What always holds:
- An owner hears what a connection asks in its order: each question says which one it stands behind. Numbers of QoS 2
  messages grow with them, so that none passes for a repeat.
- SUBSCRIBEs and UNSUBSCRIBEs are answered in their order. So what is put again are the last of them, and what they come
  to is what the client asked last.
- A question ends with its connection.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from flockmq.routing.slots import slot_of
from flockmq.session_rpc import messages
from flockmq.session_rpc.messages import Answered
from flockmq.session_rpc.notes import Notes


class _Question:
    """`asked`: the core that has it, "" for none. `answer` waits for those of the questions before it; b"": there is
    none yet.
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
    """One per node. `is_there`: the connection (client id, token) is there still."""

    def __init__(self, notes: Notes, is_there: Callable[[bytes, int], bool]) -> None:
        self._notes = notes
        self._is_there = is_there
        self._last_number = 0
        self._questions: dict[int, _Question] = {}
        self._asked_by: dict[int, set[int]] = {}
        """Token → the numbers of its questions."""
        self._unasked: set[int] = set()
        """Tokens of connections whose questions wait to be asked again: later ones wait behind them."""

    def __len__(self) -> int:
        return len(self._questions)

    def ask(self, client_id: bytes, token: int, question: messages.Question, answered: Answered) -> None:
        """`answered` gets the answer once; b"" when the connection is gone before."""
        self._put(_Question(client_id, token, question, answered))

    def _put(self, question: _Question) -> None:
        if not self._is_there(question.client_id, question.token):
            question.answered(b"")  # it went before its question could be put: nobody would end that
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
            self._notes.say(question.asked, messages.ASK, item)

    def told(self, number: int, answer: bytes) -> None:
        """An owner answers; b"": it can't."""
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
        """The connection is gone."""
        for number in sorted(self._asked_by.get(token, ())):
            self._end(number).answered(b"")
        self._unasked.discard(token)

    def untold(self, incarnation: str) -> None:
        """What was asked there found no link."""
        for question in self._questions.values():
            if question.asked == incarnation:
                self._doubt(question)

    def slots_moved(self, slots: set[int]) -> None:
        """Other cores own these slots, or may have missed what they were asked."""
        self._put_again([n for n, asked in self._questions.items() if slot_of(asked.client_id) in slots])

    def ask_again(self) -> None:
        """What nobody has."""
        self._put_again([n for n, question in self._questions.items() if question.token in self._unasked])

    def _doubt(self, question: _Question) -> None:
        question.asked = ""
        self._unasked.add(question.token)

    def _put_again(self, numbers: Iterable[int]) -> None:
        """In their order, which the numbers have."""
        again = [self._end(number) for number in sorted(numbers)]
        self._unasked.difference_update(question.token for question in again)
        for question in again:
            self._put(question)

    def _end(self, number: int) -> _Question:
        """It has no number any more."""
        question = self._questions.pop(number)
        numbers = self._asked_by[question.token]
        numbers.discard(number)
        if not numbers:
            del self._asked_by[question.token]
        return question
