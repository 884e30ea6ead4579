"""What rules permit: by topic, by filter, by who it is; and that no client can widen them."""

from __future__ import annotations

import itertools

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flockmq.auth.rule_index import RuleIndex
from flockmq.auth.rule_sources import LogRules, encoded, file_rules
from flockmq.auth.rules import Rules, Subject, claimed, compile_rules, covers, overlaps
from flockmq.config.auth_settings import FileSourceSettings, RuleSettings
from flockmq.errors import ConfigError
from flockmq.protocol.client import PUBLISH, SUBSCRIBE

JO = Subject("meter-1", "jo", "10.1.2.3", "meter.example")


def publish(rules: Rules, topic: str, subject: Subject = JO, qos: int = 0, retain: bool = False) -> bool | None:
    return rules.decide(subject, PUBLISH, topic.encode(), qos, retain)


def subscribe(rules: Rules, filter: str, subject: Subject = JO, qos: int = 0) -> bool | None:
    return rules.decide(subject, SUBSCRIBE, filter.encode(), qos, False)


def allow(*topics: str, **more: object) -> RuleSettings:
    return msgspec.convert({"permit": "allow", **_about(topics), **more}, RuleSettings)


def deny(*topics: str, **more: object) -> RuleSettings:
    return msgspec.convert({"permit": "deny", **_about(topics), **more}, RuleSettings)


def _about(topics: tuple[str, ...]) -> dict[str, object]:
    """Without any: all of them."""
    return {"topics": topics} if topics else {}


def test_the_first_rule_that_fits_decides() -> None:
    rules = Rules([deny("a/secret"), allow("a/#"), deny("#")])
    assert publish(rules, "a/b") is True
    assert publish(rules, "a") is True
    assert publish(rules, "a/secret") is False
    assert publish(rules, "b") is False
    assert publish(Rules([allow("a")]), "b") is None
    assert publish(Rules([allow()]), "$SYS/anything") is True, "no topics: all of them"


def test_wildcards_dont_reach_the_systems_topics() -> None:
    rules = Rules([allow("#", "+/x")])
    assert publish(rules, "$SYS/x") is None
    assert subscribe(rules, "$SYS/#") is None
    assert subscribe(Rules([allow("$SYS/#")]), "$SYS/brokers") is True


def test_actions_qos_and_retain() -> None:
    rules = Rules([allow("a", action="publish", qos=[0, 1]), allow("b", action="subscribe"), deny("c", retain=True)])
    assert publish(rules, "a", qos=1) is True
    assert publish(rules, "a", qos=2) is None
    assert subscribe(rules, "a") is None
    assert subscribe(rules, "b") is True
    assert publish(rules, "b") is None
    assert publish(rules, "c", retain=True) is False
    assert publish(rules, "c") is None
    assert subscribe(rules, "c") is None


def test_an_allowed_subscription_is_covered_whole_and_a_denied_one_overlaps() -> None:
    rules = Rules([deny("plant/secret/#"), allow("plant/#")])
    assert subscribe(rules, "plant/line/+") is True
    assert subscribe(rules, "plant/secret/x") is False
    assert subscribe(rules, "plant/#") is False, "it would bring what is denied"
    assert subscribe(rules, "plant/+/x") is False
    assert subscribe(rules, "#") is False
    assert subscribe(Rules([allow("plant/+")]), "plant/#") is None
    assert subscribe(Rules([allow("plant/+")]), "+/+") is None
    assert subscribe(Rules([deny("eq #"), allow()]), "#") is False
    assert subscribe(Rules([deny("eq #"), allow()]), "a/#") is True


def test_who_a_rule_is_about() -> None:
    rules = Rules(
        [
            allow("u", username="jo"),
            allow("c", clientid="meter-*"),
            allow("n", ipaddr=["10.0.0.0/8", "192.0.2.1"]),
            allow("both", username="jo", clientid="other"),
        ]
    )
    other = Subject("sensor", "", "192.0.2.2")
    assert [publish(rules, topic) for topic in ("u", "c", "n", "both")] == [True, True, True, None]
    assert [publish(rules, topic, other) for topic in ("u", "c", "n", "both")] == [None] * 4
    assert publish(rules, "n", Subject("x", "", "::ffff:10.9.9.9")) is True
    assert publish(rules, "n", Subject("x", "", "")) is None, "a Unix socket has no address"
    outside = Rules([deny(ipaddr=["192.0.2.0/24"]), allow()])
    assert publish(outside, "a", Subject("x", "", "?")) is False, "who reset its connection has an address"
    assert publish(outside, "a", Subject("x", "", "")) is True


@pytest.mark.parametrize("network", ["::ffff:192.0.2.0/120", "::ffff:c000:207", "::ffff:0:0/96"])
def test_a_network_of_mapped_addresses_is_the_one_of_IPv4(network: str) -> None:
    rules = Rules([deny(ipaddr=[network]), allow()])
    for host in ("192.0.2.7", "::ffff:192.0.2.7"):
        assert publish(rules, "a", Subject("x", "", host)) is False
    assert publish(rules, "a", Subject("x", "", "2001:db8::1")) is True


def test_placeholders_stand_for_one_level_of_this_client() -> None:
    rules = Rules([allow("d/${clientid}/#", "u/${username}-in")])
    assert publish(rules, "d/meter-1/x") is True
    assert publish(rules, "d/meter-2/x") is None
    assert publish(rules, "u/jo-in") is True
    assert subscribe(rules, "d/meter-1/#") is True
    assert subscribe(rules, "d/+/x") is None


@pytest.mark.parametrize("evil", ["+", "#", "meter-1/..", "a/b", "", "+/#"])
def test_what_a_client_calls_itself_widens_nothing(evil: str) -> None:
    rules = Rules([allow("d/${clientid}/#")])
    subject = Subject(evil, "", "10.1.2.3")
    for topic in ("d/meter-1/x", "d/+/#", "d/#", "d/a/b/c", "d//x"):
        assert publish(rules, topic, subject) is None
        assert subscribe(rules, topic, subject) is None


def test_a_client_that_calls_itself_sys_isnt_given_what_is_the_systems() -> None:
    evil = Subject("$SYS", "", "10.1.2.3")
    assert subscribe(Rules([allow("${clientid}/#")]), "$SYS/#", evil) is None
    assert subscribe(Rules([allow("$SYS/brokers/${clientid}/#")]), "$SYS/brokers/a/#", Subject("a", "", "")) is True
    assert subscribe(Rules([deny("${clientid}/#"), allow()]), "$SYS/x", evil) is False


def test_a_denial_with_a_placeholder_holds_for_strange_names_too() -> None:
    rules = Rules([deny("d/${clientid}/#"), allow()])
    assert publish(rules, "d/a/b/c", Subject("a/b", "", "")) is False
    assert subscribe(rules, "d/x", Subject("+", "", "")) is False
    assert publish(rules, "d/other", JO) is True


@pytest.mark.parametrize(
    ("rule", "why"),
    [
        (allow("a/#/b"), "rule 1: topic 'a/#/b': '\\+' must be a whole level"),
        (allow("a+"), "must be a whole level"),
        (allow(""), "is empty"),
        (allow("d/${user}"), r"topic 'd/\$\{user\}': \$\{user\} is unknown; known: \$\{clientid\}"),
        (allow("a", ipaddr=["10.0.0.1/8"]), "ipaddr '10.0.0.1/8' isn't an address or a network"),
        (allow("a", username=""), "must not be empty"),
        (allow("a", retain=True, action="subscribe"), "retain is of publishes only"),
    ],
)
def test_a_rule_that_cant_be_meant_is_refused(rule: RuleSettings, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        Rules([rule])


@pytest.mark.parametrize(
    ("topic", "why"),
    [
        ("$share/g/open", r"rule 2: topic '\$share/g/open' fits nothing: \$share/g/ isn't looked at; write 'open'"),
        ("$exclusive/a/${username}/#", r"\$exclusive/ isn't looked at; write 'a/\$\{username\}/#'"),
        ("$delayed/5/$exclusive/a", r"\$delayed/5/\$exclusive/ isn't looked at; write 'a'"),
        ("eq $share/+/#", r"topic 'eq \$share/\+/#' fits nothing: \$share/\+/ isn't looked at; write 'eq #'"),
        ("$share/#", r"\$share/# isn't looked at; write what stands behind it"),
    ],
)
def test_a_rule_about_what_no_rule_sees_is_refused_where_it_is_said(topic: str, why: str) -> None:
    rules = (allow("a"), deny(topic))
    with pytest.raises(ValueError, match=why):
        compile_rules(rules)
    with pytest.raises(ConfigError, match=rf"here\.rules: .*{why}"):
        file_rules(FileSourceSettings(rules=rules), "here")
    with pytest.raises(ValueError, match="fits nothing"):
        claimed([{"permission": "allow", "topic": topic}])
    with pytest.raises(ValueError, match="fits nothing"):
        claimed({"sub": [topic]})


def test_one_that_an_older_release_left_in_the_log_goes_on_fitting_nothing() -> None:
    left = encoded((deny("$share/g/a"), allow("a")))
    log = LogRules(lambda key: left if key == ("all", "") else None)
    assert log.decide(JO, SUBSCRIBE, b"a", 0, False) is True


# --- against a naive model ------------------------------------------------------------------------------------------

LEVELS = ("a", "b", "")
filters = st.lists(st.sampled_from((*LEVELS, "+", "$x")), min_size=1, max_size=4).flatmap(
    lambda levels: st.sampled_from([levels, [*levels, "#"], ["#"]])
)
TOPICS = [
    list(levels)
    for length in range(1, 6)
    for levels in itertools.product((*LEVELS, "$x", "c"), repeat=length)
    if length < 5 or "c" not in levels
]


def matches(filter: list[str], topic: list[str]) -> bool:
    """[MQTT-4.7], as it is written."""
    if topic[0].startswith("$") and filter[0] in ("+", "#"):
        return False
    for place, level in enumerate(filter):
        if level == "#":
            return True
        if place >= len(topic) or level not in ("+", topic[place]):
            return False
    return len(filter) == len(topic)


def raw(levels: list[str]) -> tuple[bytes, ...]:
    return tuple(level.encode() for level in levels)


@given(filters, filters)
def test_covering_and_overlapping_agree_with_what_topics_match(one: list[str], other: list[str]) -> None:
    both = [topic for topic in TOPICS if matches(one, topic) and matches(other, topic)]
    assert overlaps(raw(one), raw(other)) == bool(both)
    is_system = other[0].startswith("$") and one[0] in ("+", "#")
    if not is_system and covers(raw(one), raw(other)):
        assert all(matches(one, topic) for topic in TOPICS if matches(other, topic))


@given(filters, st.sampled_from(TOPICS))
def test_publishing_agrees_with_matching(filter: list[str], topic: list[str]) -> None:
    rules = Rules([allow("/".join(filter))]) if "/".join(filter) else None
    if rules is not None and "/".join(topic):
        assert publish(rules, "/".join(topic)) == (True if matches(filter, topic) else None)


# --- what isn't looked at --------------------------------------------------------------------------------------------


def test_rules_that_cant_fit_cost_nothing() -> None:
    own = [allow(f"plant/{number}/+/state") for number in range(330)]
    denied = [deny(f"secret/{number}/#") for number in range(330)]
    others = [allow("#", username=f"user {number}") for number in range(165)]
    others += [allow("#", clientid=f"client {number}") for number in range(165)]
    rules = Rules([*others, *denied, *own])
    for action, topic, decision in [
        (PUBLISH, "plant/7/line/state", True),
        (SUBSCRIBE, "plant/7/line/state", True),
        (SUBSCRIBE, "plant/7/+/state", True),
        (SUBSCRIBE, "secret/7/+", False),
        (PUBLISH, "elsewhere", None),
        (SUBSCRIBE, "elsewhere/#", None),
        (SUBSCRIBE, "plant/+", None),
    ]:
        subject = Subject("meter-1", "jo", "10.1.2.3")
        assert rules.decide(subject, action, topic.encode(), 0, False) is decision
        assert subject.looked_at <= 1, topic


def test_rules_that_begin_with_wildcards_are_told_apart_by_the_levels_behind() -> None:
    denied = [deny(f"+/+/{number}/#", f"site/+/{number}") for number in range(300)]
    own = [allow(f"+/{number}/state", f"+/${{clientid}}/{number}") for number in range(300)]
    rules = Rules([*denied, *own])
    for action, topic, decision in [
        (PUBLISH, "plant/7/state", True),
        (PUBLISH, "plant/meter-1/7", False),
        (SUBSCRIBE, "plant/meter-1/300", None),
        (SUBSCRIBE, "+/7/state", True),
        (SUBSCRIBE, "site/+/7", False),
        (SUBSCRIBE, "elsewhere/line/state/x", None),
        (PUBLISH, "elsewhere/line/state/x", None),
        (SUBSCRIBE, "+/+/elsewhere", None),
    ]:
        subject = Subject("meter-1", "jo", "10.1.2.3")
        assert rules.decide(subject, action, topic.encode(), 0, False) is decision, topic
        assert subject.looked_at <= 3, topic


def test_steps_that_lead_nowhere_count_too() -> None:
    rules = Rules([deny(f"{number}/x") for number in range(400)])
    subject = Subject("meter-1", "jo", "10.1.2.3")
    rules.decide(subject, SUBSCRIBE, b"+/y", 0, False)
    assert subject.looked_at >= 400 // 8


class Everything(RuleIndex):
    """Leaves nothing out."""

    __slots__ = ("_count",)

    def __init__(self, rules: Rules) -> None:
        self._count = len(rules._patterns)

    def find(self, clientid: str, username: str, asked: tuple[bytes, ...]) -> tuple[list[int], int]:
        return list(range(self._count)), 0


NAMES = ("a", "b", "a/b", "+", "#", "$x", "")
SUBJECTS = [
    Subject(clientid, username, peerhost)
    for clientid, username in itertools.product(NAMES, ("a", "#", ""))
    for peerhost in ("10.1.2.3", "192.0.2.1", "?")
]
ASKED = [
    list(levels) for length in (1, 2, 3) for levels in itertools.product(("a", "b", "", "+", "#", "$x"), repeat=length)
]
ASKED = [levels for levels in ASKED if "#" not in levels[:-1] and any(levels)]
topics = st.one_of(
    st.lists(st.sampled_from(("a", "b", "", "+", "$x", "${clientid}", "a${username}")), min_size=1, max_size=3).flatmap(
        lambda levels: st.sampled_from(["/".join(levels) or "a", "/".join([*levels, "#"]), "#"])
    ),
    st.sampled_from(ASKED).map(lambda levels: "eq " + "/".join(levels)),
)
some_rules = st.builds(
    RuleSettings,
    permit=st.sampled_from(("allow", "deny")),
    action=st.sampled_from(("publish", "subscribe", "all")),
    topics=st.lists(topics, max_size=3).map(tuple),
    qos=st.sampled_from(((), (), (0,), (1, 2))),
    username=st.sampled_from((None, None, "a", "*")),
    clientid=st.sampled_from((None, None, "a", "b", "a/b", "?")),
    ipaddr=st.sampled_from(((), (), ("10.0.0.0/8",))),
)


@settings(max_examples=200)
@given(st.lists(some_rules, max_size=10), st.sampled_from(SUBJECTS), st.integers(0, 2))
def test_what_isnt_looked_at_decides_nothing(rules: list[RuleSettings], subject: Subject, qos: int) -> None:
    indexed, plain = Rules(rules), Rules(rules)
    plain._index = Everything(plain)
    for levels in ASKED:
        asked = "/".join(levels)
        assert subscribe(indexed, asked, subject, qos) == subscribe(plain, asked, subject, qos), asked
        if not {"+", "#"} & set(levels):
            assert publish(indexed, asked, subject, qos) == publish(plain, asked, subject, qos), asked


# --- what others say ------------------------------------------------------------------------------------------------


def test_rules_in_a_token_in_both_forms_of_emqx() -> None:
    old = claimed({"pub": ["p/#"], "sub": ["s/${clientid}"], "all": ["b"]})
    assert publish(old, "p/1") is True
    assert subscribe(old, "p/1") is None
    assert subscribe(old, "s/meter-1") is True
    assert publish(old, "b") is True
    new = claimed(
        [
            {"permission": "deny", "action": "publish", "topic": "p/x"},
            {"permission": "allow", "action": "all", "topics": ["p/#"], "qos": [0, 1], "retain": "all"},
            {"permit": "allow", "topic": "q", "qos": 2, "retain": "true"},
        ]
    )
    assert publish(new, "p/x") is False
    assert publish(new, "p/y") is True
    assert publish(new, "p/y", qos=2) is None
    assert publish(new, "q", qos=2, retain=True) is True
    assert publish(new, "q", qos=2) is None


def test_whom_a_claimed_rule_is_about_is_not_passed_over() -> None:
    about = {"clientid": "other-*", "username": "jo", "ipaddr": ["10.0.0.0/8"]}
    for name, value in about.items():
        rules = claimed([{"permit": "allow", "topics": ["#"], name: value}])
        assert publish(rules, "a", Subject("other-1", "jo", "10.1.1.1")) is True
        assert publish(rules, "a", Subject("meter-1", "ann", "192.0.2.1")) is None


@pytest.mark.parametrize("name", ["topics", "qos", "ipaddr"])
def test_a_claimed_rule_that_names_nothing_isnt_one_for_everything(name: str) -> None:
    with pytest.raises(msgspec.ValidationError, match="length >= 1"):
        claimed([{"permit": "allow", "topic": "a", name: []}])


@pytest.mark.parametrize("name", ["topic", "retain", "username", "clientid"])
def test_a_claimed_rule_whose_issuer_had_no_value_isnt_one_for_everything(name: str) -> None:
    with pytest.raises(msgspec.ValidationError, match="got `null`"):
        claimed([{"permit": "allow", "topics": ["a"], name: None}])


def test_a_claimed_rule_that_allows_and_denies_is_refused() -> None:
    with pytest.raises(ValueError, match="permit and permission"):
        claimed([{"permit": "allow", "permission": "deny", "topic": "a"}])


ODD = [{"permit": "allow", "topic": "a", "clientid_re": "^x"}]


@pytest.mark.parametrize("claim", ["x", 5, {"pub": "x"}, {"xyz": []}, [{"topic": "a"}], [{"permit": "yes"}], [5], ODD])
def test_rules_that_cant_be_read_are_refused(claim: object) -> None:
    with pytest.raises((ValueError, msgspec.ValidationError)):
        claimed(claim)
