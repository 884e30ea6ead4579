"""By which client ids a client may come, whoever says that it is who it says."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine

import pytest

from flockmq.auth.authenticator import Attempt, Authenticator, Granted, LoginRefused, Pass, Verdict
from flockmq.auth.client_ids import BoundToClientIds, ClientIds
from flockmq.mqtt.reason import Reason
from flockmq.protocol.client import ClientCertificate
from unit.broker.auth.harness import attempt

WRONG = LoginRefused(Reason.BAD_USER_NAME_OR_PASSWORD, "test")


def verdict(
    template: str, client_id: str, username: str = "jo", certificate: ClientCertificate | None = None
) -> Verdict:
    tried = attempt(client_id, "what it says", certificate=certificate)
    return ClientIds(template).checked(tried, Granted(username.encode()))


def is_let_in(template: str, client_id: str, username: str = "jo") -> bool:
    judged = verdict(template, client_id, username)
    assert isinstance(judged, Granted) or judged.reason == Reason.CLIENT_IDENTIFIER_NOT_VALID  # type: ignore[union-attr]
    return isinstance(judged, Granted)


@pytest.mark.parametrize(
    ("template", "fitting", "others"),
    [
        ("${username}", ["jo"], ["ann", "jo2", "jo-1", ""]),
        ("${username}-*", ["jo-", "jo-1", "jo-1-2"], ["jo", "ann-1", "x-jo-1", "", "Jo-1"]),
        ("*-${username}", ["1-jo", "-jo"], ["jo", "1-jo-2"]),
        ("a*b*c", ["abc", "axbxc", "abbc"], ["ac", "acb", "ab", "bc", "xabc"]),
        ("a*a", ["aa", "aba"], ["a"]),
        ("ab*b*ba", ["abbba", "ab-b-ba"], ["abba", "abab"]),
    ],
)
def test_a_client_comes_by_its_own_client_ids(template: str, fitting: list[str], others: list[str]) -> None:
    assert [one for one in fitting if not is_let_in(template, one)] == []
    assert [one for one in others if one and is_let_in(template, one)] == []


def test_the_name_that_counts_is_the_one_that_was_found_out() -> None:
    assert not is_let_in("${username}-*", "what it says-1")


@pytest.mark.parametrize("username", ["*", "?", "[a-z]", ".*"])
def test_no_name_stands_for_any_letters(username: str) -> None:
    assert not is_let_in("${username}-*", "victim-1", username)
    assert is_let_in("${username}-*", f"{username}-1", username)


def test_who_lacks_what_the_template_names_comes_by_no_client_id() -> None:
    assert not is_let_in("${username}*", "victim", "")
    assert isinstance(verdict("${cert_common_name}", "", certificate=None), LoginRefused)


def test_who_gives_no_client_id_gets_one_that_fits() -> None:
    assert verdict("dev-${username}", "") == Granted(b"jo", client_id=b"dev-jo")
    one, other = verdict("${username}-*", ""), verdict("${username}-*", "")
    assert isinstance(one, Granted)
    assert one != other
    assert is_let_in("${username}-*", (one.client_id or b"").decode())
    meter = ClientCertificate("meter-1", "CN=meter-1")
    assert verdict("${cert_common_name}", "", certificate=meter) == Granted(b"jo", client_id=b"meter-1")


@pytest.mark.parametrize("text", ["cn", "gateway", "${clientid}", "${colour}-*"])
def test_a_template_that_cant_be_meant_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"would be one client's alone|is unknown; known: \$\{username\}"):
        ClientIds(text)


@pytest.mark.parametrize("answer", [Granted(b"jo"), WRONG, Pass.UNKNOWN, Pass.UNAVAILABLE])
@pytest.mark.parametrize("slow", [False, True])
async def test_a_link_of_any_kind_is_bound(answer: Verdict, slow: bool) -> None:
    class Link:
        def check(self, attempt: Attempt) -> Verdict | Coroutine[None, None, Verdict]:
            return asyncio.sleep(0, answer) if slow else answer

        async def start(self) -> None: ...
        async def stop(self) -> None: ...

    bound: Authenticator = BoundToClientIds(Link(), ClientIds("${username}-*"))
    for client_id, expected in (("jo-1", answer), ("ann-1", None)):
        checked = bound.check(attempt(client_id, "jo"))
        verdict = await checked if isinstance(checked, Coroutine) else checked
        if expected is None and isinstance(answer, Granted):
            assert isinstance(verdict, LoginRefused)
        else:
            assert verdict == answer
