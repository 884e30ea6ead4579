"""Bugs of what FlockMQ adds to plain messages: shared, exclusive, retained, delayed; bans and rules."""

from __future__ import annotations

import itertools
from collections.abc import Container, Mapping
from typing import Any, Final

from flockmq.auth.authorizer import Authorizer
from flockmq.auth.bans import Bans
from flockmq.delivery.node_sender import NodeSender
from flockmq.mqtt.reason import Reason
from flockmq.node.access_control import AccessControl
from flockmq.node.authorization import PublishReauthorization
from flockmq.node.connection_services import CleanSessionEndHandler
from flockmq.node.memory_shortage import MemoryShortage
from flockmq.node.subscription_reauthorization import SubscriptionReauthorization
from flockmq.node.unattended_publishing import LeftMessages
from flockmq.protocol.pending_publish import PendingPublish
from flockmq.publishing.delayed import parse
from flockmq.publishing.log_queue import LogQueue
from flockmq.publishing.retained_feed import RetainedFeed, RetainedGiving
from flockmq.publishing.schedule import Due, Schedule
from flockmq.rlog.retained_order import is_overtaken
from flockmq.rlog.schema import RetainedMessage
from flockmq.routes.durable_exclusive_claims import DurableExclusiveClaims
from flockmq.routes.exclusive_claim_table import ExclusiveClaimTable
from flockmq.routing.group import Group
from flockmq.routing.message_id import ORIGIN_BYTES
from flockmq.routing.shared_frames import SHARED
from flockmq.routing.shared_groups import SharedGroups
from flockmq.session.subscribe_flow import gets_retained
from flockmq.session_rpc import messages
from flockmq.session_rpc.remote_sessions import RemoteSessions
from judges import judge
from simulation.seeded.bug import EVERY, Function, seeded

_dealt: Final = itertools.count(1)

# --- shared -----------------------------------------------------------------------------------------------------------


@seeded(
    judge.SHARED_TWICE,
    "shared",
    NodeSender.disconnected,
    kinds=("cut replicant replicant", "isolate replicant"),
    seed=10,
)
def give_back_too_soon(right: Function, peer: NodeSender) -> None:
    """What a node hasn't accepted goes to other members when a link is lost, and to that node by the next one."""
    if peer.on_returned is not None:
        peer.on_returned([(b.version, b"".join(b.packets)) for b in peer._resend if b.version & SHARED])
    right(peer)


@seeded(judge.SHARED_TWICE, "shared", RemoteSessions._remembered, seed=2)
def deal_anew(right: Function, proxies: RemoteSessions, inbound: PendingPublish, answer: bytes) -> None:
    """To whom a QoS 2 message was dealt out, nobody asks: said again it is dealt out again."""
    right(proxies, inbound, messages.encode(messages.decode_origin(answer)[:ORIGIN_BYTES]) if answer else answer)


@seeded(judge.SHARED_LOST, "shared", CleanSessionEndHandler.session_ended, kinds=("kill redis",), seed=3)
def keep_from_others(right: Function, ends: CleanSessionEndHandler, session: Any) -> None:
    """What a member didn't acknowledge when its session ended goes to nobody."""
    ends._plugin_hooks.session_ended(session.client_id)


@seeded(judge.WRONG_MEMBER, "calm", SharedGroups.number)
def deal_to_the_first(right: Function, groups: SharedGroups, group: Group, *of: Any) -> int:
    """Of some messages a group's first member gets each, whatever the strategy says."""
    number: int = right(groups, group, *of)
    return number if next(_dealt) % 4 else 0


# --- exclusive --------------------------------------------------------------------------------------------------------


@seeded(judge.TWO_HOLDERS, "exclusive", ExclusiveClaimTable.is_contested)
def trust_everybody(right: Function, claims: ExclusiveClaimTable, filter: bytes, client_id: bytes) -> bool:
    """Whether another client has claimed a filter isn't looked at."""
    return False


@seeded(judge.REFUSED_ITS_OWN, "exclusive", DurableExclusiveClaims.claim, seed=2)
def refuse_its_own(
    right: Function, claims: DurableExclusiveClaims, filter: bytes, client_id: bytes, done: Function, **user: bytes
) -> None:
    """A client that has a filter, and asks for it again, is taken for another one."""
    if claims._sessions.has_exclusively(client_id, filter):
        done(Reason.QUOTA_EXCEEDED)
    else:
        right(claims, filter, client_id, done, **user)


@seeded(judge.NOT_GRANTED, "exclusive", ExclusiveClaimTable.delete, seed=45)
def count_for_ever(right: Function, claims: ExclusiveClaimTable, key: Any, old: bytes) -> None:
    """A claim counts on when it was deleted."""


# --- retained ---------------------------------------------------------------------------------------------------------


@seeded(judge.RETAINED, "retained", RetainedFeed.swap, kinds=("kill replicant", "drain replicant"))
def keep_the_old(right: Function, retained: RetainedFeed, fresh: RetainedFeed) -> None:
    """What a bootstrap brings isn't shown."""


@seeded(judge.RETAINED, "retained", RetainedFeed.put, seed=5)
def clear_nothing(right: Function, retained: RetainedFeed, key: bytes, value: RetainedMessage, old: Any) -> None:
    """What is cleared is shown on."""
    if value.payload:
        right(retained, key, value, old)


@seeded(judge.RETAINED, "wills", is_overtaken, kinds=("kill replicant", "stop replicant", "isolate replicant"), seed=13)
def keep_the_last_of_the_log(right: Function, author: bytes, by: bytes) -> bool:
    """What a client's former connection left, or its will, replaces what a later one wrote."""
    return False


_retained: Final = itertools.count(1)


@seeded(judge.RETAINED_MISSING, "retained", gets_retained, seed=2)
def give_once(right: Function, filter: bytes, retain_handling: int, is_new: bool) -> bool:
    """What is retained comes by the first SUBSCRIBE alone, whatever its Retain Handling says."""
    return is_new and bool(right(filter, retain_handling, is_new))


@seeded(judge.RETAINED_UNASKED, "retained", gets_retained)
def give_to_everybody(right: Function, filter: bytes, retain_handling: int, is_new: bool) -> bool:
    """It comes by each SUBSCRIBE."""
    return bool(right(filter, 0, is_new))


@seeded(judge.RETAINED_TWICE, "retained", RetainedGiving.send)
def give_twice(right: Function, *message: Any) -> None:
    """Some of it comes twice."""
    right(*message)
    if next(_retained) % EVERY == 0:
        right(*message)


@seeded(judge.REFUSED, "retained", LogQueue._seen, seed=2)
async def refuse_too_soon(right: Function, queue: LogQueue[Any], reason: int, sees_routes: bool) -> int:
    """Some publishers of retained messages hear that the log doesn't answer, which has them."""
    answer: int = await right(queue, reason, sees_routes)
    return Reason.UNSPECIFIED_ERROR if sees_routes and next(_retained) % 4 == 0 else answer


# --- delayed ----------------------------------------------------------------------------------------------------------


@seeded(judge.EARLY, "delayed", parse)
def count_in_tenths(right: Function, topic: bytes, now_s: float, *, may_be_past: bool = False) -> tuple[int, bytes]:
    """A delay is taken for tenths of a second."""
    due_ms, inner = right(topic, now_s, may_be_past=may_be_past)
    return round(now_s * 1000 + (due_ms - now_s * 1000) / 10), inner


_delayed: Final = itertools.count(1)


@seeded(judge.REFUSED, "delayed", LogQueue._seen, seed=6)
async def keep_what_is_refused(right: Function, queue: LogQueue[Any], reason: int, sees_routes: bool) -> int:
    """Some publishers of delayed messages hear that there is no room, and the log has them."""
    answer: int = await right(queue, reason, sees_routes)
    return answer if sees_routes or next(_delayed) % EVERY else Reason.QUOTA_EXCEEDED


@seeded(judge.LOST, "delayed", Schedule.due, seed=8)
def look_at_the_last_second(
    right: Function,
    schedule: Schedule,
    now_ms: int,
    limit: int,
    tried: Mapping[bytes, bytes] | None = None,
    skipped: Container[bytes] = (),
) -> list[Due]:
    """What was due more than a second ago isn't published any more."""
    oldest = (now_ms - 1000).to_bytes(8, "big")
    due: list[Due] = right(schedule, now_ms, limit, tried, skipped)
    return [one for one in due if one.key > oldest]


@seeded(judge.NO_PROGRESS, "delayed", LeftMessages.caught_up)
async def never_catch_up(right: Function, left: LeftMessages) -> bool:
    """A leader waits for ever for what the leader before published."""
    return False


@seeded(judge.DELAYED_ORDER, "delayed", parse, seed=13)
def tick_slowly(right: Function, topic: bytes, now_s: float, *, may_be_past: bool = False) -> tuple[int, bytes]:
    """All that is due within four seconds is due at the end of them, in any order."""
    due_ms, inner = right(topic, now_s, may_be_past=may_be_past)
    return -(-due_ms // 4000) * 4000, inner


# --- memory ----------------------------------------------------------------------------------------------------------


@seeded(judge.STORED_ANYWAY, "retained", MemoryShortage.refuses, kinds=("crowd redis",), seed=2)
def store_whatever_comes(right: Function, shortage: MemoryShortage, size_bytes: int) -> bool:
    """What is to be retained is written, however little memory is left."""
    return False


# --- bans and rules ---------------------------------------------------------------------------------------------------


@seeded(judge.BANNED, "rules", AccessControl._on_ban, seed=2)
def ban_newcomers_only(right: Function, access: AccessControl, key: Any) -> None:
    """Who is banned while it is connected stays."""


@seeded(judge.BANNED, "rules", Bans.banned, seed=2)
def ban_names_only(right: Function, bans: Bans, client_id: bytes, username: bytes | None, host: str) -> bool:
    """A client id that is banned is let in."""
    banned: bool = right(bans, b"", username, host)
    return banned


@seeded(judge.LET_THROUGH, "rules", PublishReauthorization.rules_changed, seed=5)
def ask_once(right: Function, reauthorizing: PublishReauthorization) -> None:
    """What a client was allowed once it is allowed as long as it stays."""


@seeded(judge.LET_THROUGH, "rules", SubscriptionReauthorization.rules_changed, seed=11)
def leave_what_stands(right: Function, standing: SubscriptionReauthorization, key: Any) -> None:
    """A subscription that was allowed once stays."""


@seeded(judge.LET_THROUGH, "rules", LeftMessages.drops, kinds=("clock replicant",), seed=8)
def publish_what_was_allowed(right: Function, left: LeftMessages, row: Any) -> bool:
    """What is delayed is published, whatever rules say when it is due."""
    return False


@seeded(judge.LET_THROUGH, "rules", LeftMessages.publish_left, kinds=("clock replicant",), seed=2)
def mourn_as_was_allowed(right: Function, left: LeftMessages, will: Any, accepted: Function) -> None:
    """A will is published, whatever rules say when it is due."""
    left.unattended.publish(will.will.message, accepted)


@seeded(judge.LET_THROUGH, "rules", Authorizer._changed, seed=2)
def compile_once(right: Function, authorizer: Authorizer, key: Any) -> None:
    """Answers are kept when the rules change."""
    authorizer.on_change()
