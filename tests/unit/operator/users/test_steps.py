"""What is done for a user, and in which order."""

import msgspec
import pytest

from flockmq_operator.manifest import Manifest
from flockmq_operator.spec import Rule
from flockmq_operator.users.api import Seen, SeenUser
from flockmq_operator.users.quotas import Quotas
from flockmq_operator.users.spec import UserSpec
from flockmq_operator.users.steps import Step, steps

PLAIN = SeenUser(is_superuser=False, is_disabled=False, version="1")
SUPER, DISABLED = PLAIN._replace(is_superuser=True), PLAIN._replace(is_disabled=True)
DENY = ({"permit": "deny"},)


def spec(**said: object) -> UserSpec:
    return msgspec.convert({"cluster": "demo", "passwordSecretRef": {"name": "s"}, **said}, UserSpec)


@pytest.mark.parametrize(
    ("said", "user", "rules", "has_password", "is_set", "todo"),
    [
        ({}, PLAIN, (), True, True, []),
        ({"rules": DENY}, PLAIN, (Rule("deny"),), True, True, []),
        ({}, PLAIN, (), True, False, ["change"]),
        ({}, PLAIN, (), False, False, []),
        ({"superuser": True}, PLAIN, (), True, True, ["change"]),
        ({"superuser": True}, PLAIN, (), False, False, ["change"]),
        ({}, SUPER, (), True, True, ["change"]),
        ({"rules": DENY}, PLAIN, (), True, True, ["rules"]),
        ({}, PLAIN, (Rule("deny"),), True, True, ["rules"]),
        ({"rules": DENY}, PLAIN, (Rule("deny", username="eve"),), True, True, ["rules"]),
        # Without its rules no user is made or let in; who is kept out is so first.
        ({"rules": DENY}, None, (), True, False, ["rules", "create"]),
        ({"rules": DENY}, None, (), False, False, []),
        ({"rules": DENY}, DISABLED, (), True, True, ["rules", "change"]),
        ({"rules": DENY, "enabled": False}, PLAIN, (), True, True, ["change", "rules"]),
        ({"rules": DENY}, SUPER, (), True, True, ["change", "rules"]),
    ],
)
def test_what_is_done(
    said: Manifest, user: SeenUser | None, rules: tuple[Rule, ...], has_password: bool, is_set: bool, todo: list[Step]
) -> None:
    assert steps(spec(**said), Seen(user, rules, {}), has_password=has_password, is_password_set=is_set) == todo


SMALL = {"maxSessions": 1, "maxQueuedBytes": "64KB"}
HAS_SMALL: Quotas = {"max_sessions": 1, "max_queued_bytes": 64 * 1024}


@pytest.mark.parametrize(
    ("said", "user", "quotas", "todo"),
    [
        ({"quotas": SMALL}, PLAIN, HAS_SMALL, []),
        ({"quotas": SMALL}, PLAIN, {}, ["quotas"]),
        ({"quotas": SMALL}, PLAIN, HAS_SMALL | {"max_sessions": "infinity"}, ["quotas"]),
        ({}, PLAIN, HAS_SMALL, ["quotas"]),
        ({"quotas": {}}, PLAIN, {}, []),
        ({"quotas": SMALL, "rules": DENY}, None, {}, ["rules", "quotas", "create"]),
        ({"quotas": SMALL}, DISABLED, {}, ["quotas", "change"]),
        ({"quotas": SMALL, "enabled": False}, PLAIN, {}, ["change", "quotas"]),
    ],
)
def test_what_is_done_about_quotas(said: Manifest, user: SeenUser | None, quotas: Quotas, todo: list[Step]) -> None:
    assert steps(spec(**said), Seen(user, (), quotas), has_password=True, is_password_set=user is not None) == todo
