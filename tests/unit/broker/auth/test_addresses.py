"""Which addresses are one host's."""

from flockmq.auth.addresses import network, shown_address


def test_an_ipv6_host_has_a_whole_network() -> None:
    assert network("2001:db8:1:2::1") == network("2001:db8:1:2:ffff::1") != network("2001:db8:1:3::1")
    assert network("192.0.2.1") == "192.0.2.1"
    assert network("fe80::1%eth0") == "fe80::/64"
    assert network("") == ""
    assert network("a:b") == "a:b"
    assert network(network("2001:db8:1:2::1")) == "2001:db8:1:2::/64"


def test_hosts_that_come_over_an_ipv6_socket_are_told_apart() -> None:
    assert network("::ffff:192.0.2.1") == "192.0.2.1"


def test_people_are_shown_the_address_that_they_know() -> None:
    assert shown_address("::ffff:192.0.2.1") == shown_address("192.0.2.1") == "192.0.2.1"
    assert shown_address("2001:db8::7") == "2001:db8::7"
    assert shown_address("") == ""
