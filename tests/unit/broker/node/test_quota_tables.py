"""What the tables of quotas and of delayed messages tell a node."""

from __future__ import annotations

import msgspec

from flockmq.bounds import RETAINED_MESSAGE_BYTES
from flockmq.config.schema import QuotasSettings
from flockmq.node.quota_tables import DelayedBytes, OwnLimits
from flockmq.quotas import KINDS, UNLIMITED, Quotas
from flockmq.rlog.schema import AUTH, DELAYED, QUOTAS, DelayedMessage, OwnQuotas
from flockmq.rlog.tables import Tables
from unit.broker.auth.harness import FakeLog


def listening(quotas: Quotas) -> FakeLog:
    log = FakeLog()
    log.on_change(QUOTAS.name, OwnLimits(quotas))
    log.on_change(DELAYED.name, DelayedBytes(quotas.delayed))
    return log


def test_a_row_has_what_the_settings_have_in_the_order_of_kinds() -> None:
    assert OwnQuotas.__struct_fields__ == tuple(f"max_{kind}" for kind in KINDS)
    assert OwnQuotas.__struct_fields__ == QuotasSettings.__struct_fields__


def test_a_row_is_the_users_quota_until_it_is_gone() -> None:
    quotas = Quotas(UNLIMITED)
    log = listening(quotas)
    log.put([QUOTAS.put("jo/ö", OwnQuotas(max_sessions=3))])
    assert quotas.limits_of("jo/ö".encode()) == UNLIMITED._replace(sessions=3)
    log.put([QUOTAS.put("jo/ö", OwnQuotas(max_queued_bytes=4))])
    assert quotas.limits_of("jo/ö".encode()) == UNLIMITED._replace(queued_bytes=4)
    log.put([QUOTAS.delete("jo/ö")])
    assert quotas.limits_of("jo/ö".encode()) == UNLIMITED


def test_a_bootstrap_replaces_all_rows() -> None:
    quotas = Quotas(UNLIMITED)
    log = listening(quotas)
    log.put([QUOTAS.put("eve", OwnQuotas(max_sessions=3))])
    fresh = log.tables.shards[AUTH].fresh()
    for name in ("jo", "ann"):
        number, kind, owner, key, value = QUOTAS.put(name, OwnQuotas(max_sessions=5))
        fresh.tables[number].apply(kind, owner, [key], [value])
    number, kind, owner, key, _ = QUOTAS.delete("ann")
    fresh.tables[number].apply(kind, owner, [key], [])
    assert quotas.limits_of(b"eve").sessions == 3, "not before the swap"
    log.tables.swap(fresh)
    assert quotas.own == {b"jo": (5, None, None, None, None)}
    log.put([QUOTAS.put("eve", OwnQuotas(max_sessions=4))])
    assert quotas.limits_of(b"eve").sessions == 4, "the listener goes on"


def test_what_a_later_release_adds_to_a_row_is_kept() -> None:
    later = msgspec.msgpack.encode([1, None, None, None, None, 7])
    tables = Tables()
    table = tables.shards[AUTH].tables[QUOTAS.number]
    table.apply(0, "", [b"eve"], [later])
    assert tables.quotas.get("eve") == OwnQuotas(max_sessions=1)
    ((_, _, _, keys, values),) = table.export()
    assert (list(keys), list(values)) == ([b"eve"], [later])


def test_delayed_messages_count_for_their_user() -> None:
    quotas = Quotas(UNLIMITED)
    log = listening(quotas)
    message = DelayedMessage(b"t", b"xy", 1, False, b"", 5, client_id=b"c", user=b"eve")
    log.put([DELAYED.put(b"1", message)])
    assert quotas.stored_bytes(b"eve") == RETAINED_MESSAGE_BYTES + 3
    log.put([DELAYED.delete(b"1")])
    assert quotas.stored_bytes(b"eve") == 0
