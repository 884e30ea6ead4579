"""Whose address may connect."""

from __future__ import annotations

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flockmq.transport.listener import AddressFilter

Network = ipaddress.IPv4Network | ipaddress.IPv6Network
MAPPED = ipaddress.ip_network("::ffff:0:0/96")
"""IPv4 as a dual-stack socket shows it: it is judged as IPv4, not as ipaddress has it."""

addresses = st.ip_addresses().filter(lambda address: address not in MAPPED)
networks = addresses.flatmap(
    lambda address: st.integers(0, address.max_prefixlen).map(
        lambda length: ipaddress.ip_network((address, length), strict=False)
    )
).filter(lambda network: network.version == 4 or not network.subnet_of(MAPPED))


@given(addresses, st.lists(networks, max_size=3), st.lists(networks, max_size=3))
def test_deny_beats_allow_and_no_allow_allows_all(
    address: ipaddress.IPv4Address | ipaddress.IPv6Address, allow: list[Network], deny: list[Network]
) -> None:
    is_denied = any(address in network for network in deny)
    is_allowed = not allow or any(address in network for network in allow)
    assert AddressFilter(allow, deny).admits(str(address)) == (is_allowed and not is_denied)


@pytest.mark.parametrize("host", ["10.1.2.3", "::ffff:10.1.2.3"])
def test_an_ipv4_client_of_a_dual_stack_socket_is_an_ipv4_client(host: str) -> None:
    assert AddressFilter([ipaddress.ip_network("10.0.0.0/8")]).admits(host)
    assert not AddressFilter(deny=[ipaddress.ip_network("10.0.0.0/8")]).admits(host)
    assert AddressFilter([ipaddress.ip_network("::ffff:10.0.0.0/104")]).admits(host)


def test_a_link_local_address_with_its_interface_is_judged_without_it() -> None:
    assert AddressFilter([ipaddress.ip_network("fe80::/10")]).admits("fe80::1%eth0")
