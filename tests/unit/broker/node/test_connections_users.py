"""A client id of another user is refused."""

from __future__ import annotations

import pytest

from flockmq.mqtt import encode
from flockmq.mqtt.packets import Connect
from flockmq.mqtt.reason import Reason
from flockmq.session_rpc.messages import OtherUser, is_clean_session, user_of
from unit.broker.node.admitting import Admitting


@pytest.mark.parametrize("lasts", [True, False])
@pytest.mark.parametrize(
    ("binding", "identifies", "user", "bound_to"),
    [
        ("auto", True, b"jo", b"jo"),
        ("auto", True, b"", b""),
        ("auto", False, b"jo", None),
        ("user", False, b"jo", b"jo"),
        ("none", True, b"jo", None),
    ],
)
def test_an_owner_is_told_whose_a_client_id_is(
    admitting: Admitting, lasts: bool, binding: str, identifies: bool, user: bytes, bound_to: bytes | None
) -> None:
    admitting.node.limits.client_id_binding = binding
    admitting.clients.registrations.identifies = lambda: identifies
    admitting.clients.registrations.owners_keep_wills = lambda: True
    admitting.user = user
    client = admitting.connecting(clean=not lasts, expiry_s=60 if lasts else 0)
    [(_, request, _)] = admitting.owner.asked
    assert user_of(request) == bound_to
    assert request is None or is_clean_session(request) != lasts
    admitting.answer(client, 7, lasts=lasts)
    [connection] = admitting.clients.connections()
    assert user_of(connection.request) == bound_to, "the next owner is told, too"


@pytest.mark.parametrize(("version", "said"), [(5, Reason.CLIENT_IDENTIFIER_NOT_VALID), (4, 2)])
def test_a_client_id_of_another_user_is_refused(admitting: Admitting, version: int, said: int) -> None:
    client = admitting.connecting(version=version)
    assert admitting.answer(client, OtherUser("it is another user's"))[3] == said


def test_another_users_connection_here_stays_though_its_owner_is_new(admitting: Admitting) -> None:
    admitting.clients.registrations.identifies = lambda: True
    admitting.user = b"jo"
    client = admitting.connecting()
    admitting.answer(client, 7)
    admitting.user = b"eve"
    channel = admitting.node.opened()
    answer = b"".join(admitting.node.feed(channel, encode.connect(Connect(5, b"c", clean_start=True))))
    assert answer[3] == Reason.CLIENT_IDENTIFIER_NOT_VALID
    assert admitting.owner.asked == []
    assert admitting.tokens() == [(b"c", 7)]
