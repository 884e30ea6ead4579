"""Topic rewrite: which rule decides, what it makes of a topic, and what it refuses to make."""

from __future__ import annotations

import pytest

from flockmq.mqtt.rewrite_rule import RewriteRule
from flockmq.routing.topic_rewrite import RewriteRules

EMQX_EXAMPLE = RewriteRules(
    [
        RewriteRule("y/+/z/#", "^y/(.+)/z/(.+)$", "y/z/$2"),
        RewriteRule("x/#", "^x/y/(.+)$", "z/y/x/$1"),
        RewriteRule("x/y/+", r"^x/y/(\d+)$", "z/y/$1"),
    ]
)


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        ("y/a/z/b", "y/z/b"),
        ("y/def", "y/def"),
        ("x/1/2", "x/1/2"),
        ("x/y/2", "z/y/2"),
        ("x/y/z", "x/y/z"),  # the last rule whose source matches decides, and its expression doesn't
        ("x/y/z/1", "z/y/x/z/1"),
    ],
)
def test_the_last_rule_whose_source_matches_decides(said: str, meant: str) -> None:
    assert EMQX_EXAMPLE.topic(said.encode(), b"c", b"u") == meant.encode()


def test_clientid_and_username_are_the_clients() -> None:
    rules = RewriteRules([RewriteRule("up/#", "^up/(.+)$", "tenants/${username}/${clientid}/$1")])
    assert rules.topic(b"up/temp", b"dev1", b"acme") == b"tenants/acme/dev1/temp"


@pytest.mark.parametrize("client_id", [b"", b"a/b", b"+", b"#", b"a+", b"$SYS", b"$c"])
def test_a_client_id_that_is_not_one_level_is_refused(client_id: bytes) -> None:
    rules = RewriteRules([RewriteRule("up/#", "^up/(.+)$", "tenants/${clientid}/$1")])
    assert rules.topic(b"up/temp", client_id, b"u") == b""
    assert rules.filter(b"up/+", client_id, b"u") == b""


def test_a_result_that_is_no_topic_is_refused() -> None:
    assert RewriteRules([RewriteRule("a/#", "^a/(.*)$", "$1")]).topic(b"a/", b"c", b"u") == b""
    wild = RewriteRules([RewriteRule("a/#", "^a/.*$", "b/#")])
    assert wild.topic(b"a/b", b"c", b"u") == b""
    assert wild.filter(b"a/b", b"c", b"u") == b"b/#"
    assert RewriteRules([RewriteRule("a/#", "^a/(.+)$", "b$1")]).filter(b"a/#", b"c", b"u") == b""


def test_a_topic_that_grows_beyond_what_a_packet_can_say_is_refused() -> None:
    rules = RewriteRules([RewriteRule("#", "^(.*)$", "$1$1")])
    assert rules.topic(b"a" * 40_000, b"c", b"u") == b""


def test_a_group_that_took_no_part_is_empty() -> None:
    assert RewriteRules([RewriteRule("#", "^(a)|(b)$", "x$1$2")]).topic(b"b", b"c", b"u") == b"xb"


MOUNT = RewriteRules([RewriteRule("#", "^(.+)$", "tenants/${username}/$1")])


@pytest.mark.parametrize("prefix", ["$share/g/", "$exclusive/", "$share/g/$exclusive/"])
@pytest.mark.parametrize("filter", ["#", "+/x", "a"])
def test_no_prefix_of_a_filter_leads_out_of_a_mount(prefix: str, filter: str) -> None:
    assert MOUNT.filter((prefix + filter).encode(), b"c", b"u") == f"{prefix}tenants/u/{filter}".encode()


def test_a_delayed_message_stays_in_its_mount() -> None:
    assert MOUNT.topic(b"$delayed/5/a", b"c", b"u") == b"$delayed/5/tenants/u/a"
    assert MOUNT.topic(b"$delayed/5/" + b"a" * 65_520, b"c", b"u") == b""


def test_groups_lead_below_dollar_sys_only_where_the_rule_says_so() -> None:
    rules = RewriteRules(
        [
            RewriteRule("in/#", "^in/(.+)$", "$1"),
            RewriteRule("own/#", "^own/(.+)$", "$SYS/$1"),
            RewriteRule("$aws/#", "(.+)", "$1/x"),
        ]
    )
    assert rules.topic(b"in/$SYS/x", b"c", b"u") == b""
    assert rules.filter(b"in/$SYS/#", b"c", b"u") == b""
    assert rules.filter(b"$share/g/in/$exclusive/a", b"c", b"u") == b""
    assert rules.filter(b"own/#", b"c", b"u") == b"$SYS/#"
    assert rules.topic(b"$aws/y", b"c", b"u") == b"$aws/y/x"


def test_filters_are_rewritten_with_their_wildcards_and_shares_keep_their_group() -> None:
    rules = RewriteRules([RewriteRule("x/#", "^x/y/(.+)$", "z/$1")])
    assert rules.filter(b"x/y/+/#", b"c", b"u") == b"z/+/#"
    assert rules.filter(b"$share/g/x/y/1", b"c", b"u") == b"$share/g/z/1"
    assert rules.filter(b"$share/g/other", b"c", b"u") == b"$share/g/other"
    assert rules.filter(b"#", b"c", b"u") == b"#"


def test_characters_beyond_ascii_are_characters() -> None:
    assert RewriteRules([RewriteRule("#", "^(.)/(.+)$", "$2/$1")]).topic("ä/ß".encode(), b"c", b"u") == "ß/ä".encode()


def test_an_expression_that_would_backtrack_for_ever_answers() -> None:
    rules = RewriteRules([RewriteRule("#", "^(a+)+$", "b")])
    topic = b"a" * 65_000 + b"!"
    assert rules.topic(topic, b"c", b"u") == topic
