"""Who is banned, by each kind of ban; when bans end; and how the index follows its table."""

from __future__ import annotations

import pytest

from flockmq.auth.bans import KINDS, Bans, Key, normal
from flockmq.bounds import BAN_PATTERNS_MAX
from flockmq.rlog.schema import Ban

FOR_GOOD = Ban(0.0, "test", "", 0.0)


class Clock:
    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def bans(clock: Clock) -> Bans:
    return Bans(clock)


def banned(bans: Bans, client_id: str = "c", username: str | None = "u", host: str = "192.0.2.1") -> bool:
    return bans.banned(client_id.encode(), None if username is None else username.encode(), host)


@pytest.mark.parametrize(
    ("kind", "who", "hit", "miss"),
    [
        ("clientid", "c1", {"client_id": "c1"}, {"client_id": "c11"}),
        ("username", "u1", {"username": "u1"}, {"username": None}),
        ("peerhost", "192.0.2.7", {"host": "192.0.2.7"}, {"host": "192.0.2.8"}),
        ("peerhost", "192.0.2.7", {"host": "::ffff:192.0.2.7"}, {"host": ""}),
        ("peerhost_net", "10.0.0.0/8", {"host": "10.255.1.1"}, {"host": "11.0.0.1"}),
        ("peerhost_net", "2001:db8::/32", {"host": "2001:db8:ff::1"}, {"host": "2001:db9::1"}),
        ("peerhost_net", "0.0.0.0/0", {"host": "198.51.100.1"}, {"host": "2001:db8::1"}),
        ("client", '["u","c","192.0.2.1"]', {}, {"username": "v"}),
        ("client", '["u", "c", "192.0.2.1"]', {"host": "::ffff:192.0.2.1"}, {"client_id": "d"}),
        ("client", '["","c","192.0.2.1"]', {"username": None}, {"username": "u"}),
        ("client", '["u","c","2001:db8::/64"]', {"host": "2001:db8::1"}, {"host": "2001:db8:0:1::1"}),
        ("clientid_pattern", "bot-*", {"client_id": "bot-7"}, {"client_id": "robot-7"}),
        ("username_pattern", "t?st", {"username": "test"}, {"username": None}),
    ],
)
def test_each_kind_of_ban(bans: Bans, kind: str, who: str, hit: dict[str, str], miss: dict[str, str]) -> None:
    assert kind in KINDS
    assert not banned(bans, **hit)
    bans.put((kind, who), FOR_GOOD, None)
    assert len(bans) == 1
    assert banned(bans, **hit)
    assert not banned(bans, **miss)
    bans.delete((kind, who), FOR_GOOD)
    assert not banned(bans, **hit)
    assert len(bans) == 0


def test_a_ban_ends_at_its_time_whether_its_row_is_gone_or_not(bans: Bans, clock: Clock) -> None:
    for kind, who in (("clientid", "c"), ("peerhost_net", "192.0.2.0/24"), ("username_pattern", "*")):
        bans.put((kind, who), Ban(1010.0, "", "", 1000.0), None)
    clock.now_s = 1009.9
    assert banned(bans)
    clock.now_s = 1010.0
    assert not banned(bans)
    bans.put(("clientid", "c"), Ban(1020.0, "", "", 1010.0), None)
    assert banned(bans), "a longer one has taken its place"


@pytest.mark.parametrize(("address", "net"), [("192.0.2.1", "192.0.2.1/32"), ("2001:db8::1", "2001:db8::1/128")])
def test_an_address_and_the_network_of_it_alone_are_two_bans(bans: Bans, clock: Clock, address: str, net: str) -> None:
    host, network = ("peerhost", address), ("peerhost_net", net)
    for_a_while = Ban(1010.0, "test", "", 1000.0)
    for lasting, other in ((host, network), (network, host)):
        bans.put(lasting, FOR_GOOD, None)
        bans.put(other, for_a_while, None)
        assert len(bans) == 2
        clock.now_s = 1010.0
        assert banned(bans, host=address), "the other one's end isn't its own"
        bans.delete(other, for_a_while)
        assert banned(bans, host=address)
        bans.delete(lasting, FOR_GOOD)
        assert bans.is_empty()
        clock.now_s = 1000.0


def test_who_listens_hears_of_each_ban_and_of_a_new_table(bans: Bans) -> None:
    heard: list[Key | None] = []
    bans.on_ban = heard.append
    bans.put(("clientid", "c"), FOR_GOOD, None)
    fresh = bans.fresh()
    fresh.put(("username", "u"), FOR_GOOD, None)
    assert heard == [("clientid", "c")]
    bans.swap(fresh)
    assert heard == [("clientid", "c"), None]
    assert banned(bans)
    assert not banned(bans, username="other")


def test_a_network_of_a_zone_that_is_let_in_again_lifts_no_other_ban(bans: Bans) -> None:
    net, of_zone = ("peerhost_net", "fe80::/64"), ("peerhost_net", normal("peerhost_net", "fe80::%eth0/64"))
    rows = dict.fromkeys((net, of_zone), FOR_GOOD)
    for key in rows:
        bans.put(key, FOR_GOOD, None)
    assert banned(bans, host="fe80::1%eth0")
    del rows[of_zone]
    bans.delete(of_zone, FOR_GOOD)
    assert banned(bans, host="fe80::1%eth0") == (net in rows)


def test_patterns_are_bounded_and_kinds_of_newer_nodes_are_passed_over(bans: Bans) -> None:
    for number in range(BAN_PATTERNS_MAX + 1):
        bans.put(("clientid_pattern", f"{number}-*"), FOR_GOOD, None)
    assert bans.patterns == BAN_PATTERNS_MAX
    assert not banned(bans, client_id=f"{BAN_PATTERNS_MAX}-x")
    bans.put(("country", "atlantis"), FOR_GOOD, None)
    bans.delete(("country", "atlantis"), FOR_GOOD)
    bans.put(("peerhost", "no address"), FOR_GOOD, None)
    bans.delete(("peerhost", "no address"), FOR_GOOD)


def test_addresses_are_kept_in_one_form() -> None:
    assert normal("peerhost", "2001:DB8::0:1") == "2001:db8::1"
    assert normal("peerhost", "::ffff:192.0.2.1") == "192.0.2.1"
    assert normal("peerhost", "fe80::1%eth0") == "fe80::1"
    assert normal("peerhost_net", "::ffff:10.0.0.0/104") == "10.0.0.0/8"
    assert normal("peerhost_net", "2001:db8::/32") == "2001:db8::/32"
    assert normal("peerhost_net", "fe80::%eth0/64") == "fe80::/64"
    assert normal("peerhost_net", "fe80::1%eth0") == "fe80::1/128"
    assert normal("clientid", "MiXed") == "MiXed"
    assert normal("client", '["u", "c", "2001:db8::1"]') == '["u","c","2001:db8::/64"]'
    assert normal("client", normal("client", '["u", "c", "2001:db8::1"]')) == '["u","c","2001:db8::/64"]'
    for kind, who in (
        *(("peerhost", "host"), ("peerhost_net", "10.0.0.1/8"), ("clientid", "")),
        *(("client", "c"), ("client", '["u","c"]'), ("client", '["u","c",7]')),
    ):
        with pytest.raises(ValueError):
            normal(kind, who)
