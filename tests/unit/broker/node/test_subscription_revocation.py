"""Subscriptions of durable sessions are judged by what was asked for, where that is known."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from flockmq.default_callbacks import ignore
from flockmq.node.subscription_revocation import SubscriptionRevocation
from flockmq.session_rpc.ports import FilterAuthorizer, Held
from unit.broker.protocol.harness import Client, Node, remote


class Proxies:
    """The owner has these."""

    def __init__(self, held: dict[bytes, Held]) -> None:
        self.held = held

    async def authorize_subscriptions(
        self, channel: Any, token: int, authorizer: FilterAuthorizer, rules: Any
    ) -> list[bytes]:
        assert rules() == b"rules"
        return await authorizer.denied(channel, self.held)


class Everything:
    async def denied(self, channel: Any, held: dict[bytes, Held]) -> list[bytes]:
        return list(held)


def revocation(client: Client, proxies: Proxies | None = None) -> SubscriptionRevocation:
    """Of a node whose clients are subject to rules; nobody can have asked for what begins with own/."""
    access = SimpleNamespace(fingerprint=lambda channel: b"rules", must_authorize=lambda principal: True)
    return SubscriptionRevocation(
        client.router,
        cast(Any, access),
        cast(Any, SimpleNamespace(authorize=None, rest=None)),
        list,
        lambda client_id: None,
        cast(Any, None),
        cast(Any, proxies),
        lambda: True,
        lambda channel, filter: filter.startswith(b"own/"),
        ignore,
    )


def test_a_client_whose_first_subscribe_waits_for_its_route_is_checked() -> None:
    node = Node()
    client = node.client("c")
    revoking = revocation(client)
    assert not revoking.must_check(client)
    node.port.hold = True
    node.subscribe(client, ("a", 0))
    assert revoking.must_check(client)


async def test_a_filter_that_nobody_can_have_asked_for_stays() -> None:
    client = Node().client("c")
    remote(client)
    revoking = revocation(client, Proxies({b"own/a": (b"a", 1), b"own/b": (b"own/b", 1), b"c": (b"c", 1)}))
    assert revoking.must_check(client)
    assert await revoking.revoke_denied(client, Everything()) == [b"own/a", b"c"]
