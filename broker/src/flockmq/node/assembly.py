"""Builds a node from its configuration and from its environment (clock, Redis, disk, network).

`assemble` opens nothing. `running` makes the node a cluster member with complete tables, and `stay` keeps it one. The
caller opens the sockets for clients and HTTP (run.py).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, NamedTuple

from flockmq import __version__, tasks
from flockmq.auth.service import AuthService
from flockmq.auth.unknown_user_secret import UnknownUserSecret
from flockmq.bounds import MATCH_CACHE_MAX_BYTES, MATCH_CACHE_MEMORY_SHARE
from flockmq.clock import SYSTEM as SYSTEM_CLOCK
from flockmq.clock import Clock
from flockmq.config.listener_settings import RatesSettings, named_listeners
from flockmq.config.load import Loaded
from flockmq.config.schema import Config, MqttSettings, RebalanceSettings
from flockmq.config.values import Address
from flockmq.delivery.delivery import Delivery
from flockmq.durable.session_store import SessionStore
from flockmq.entropy import SYSTEM as SYSTEM_ENTROPY
from flockmq.entropy import Entropy
from flockmq.errors import RedisUnavailable, cannot_bind
from flockmq.membership.cluster import Cluster
from flockmq.membership.cluster_version import NEWEST
from flockmq.membership.link_certificates import LinkCertificates, LinkFiles
from flockmq.membership.link_keys import LinkKeys
from flockmq.membership.link_listener import Bind
from flockmq.membership.membership_settings import MembershipSettings
from flockmq.membership.readiness import OwnRedis
from flockmq.memory_limit import ANY_MEMORY, NodeMemory
from flockmq.node.client_balance import Balancing
from flockmq.node.eviction_pace import Draining
from flockmq.node.hot_settings import HotSettings
from flockmq.node.node import Node
from flockmq.node.node_details import NodeDetails
from flockmq.node.node_load import Weights
from flockmq.node.plugin_hooks import PluginHooks
from flockmq.node.rebalancing import Rebalances
from flockmq.node.rejoin import come_back, come_in
from flockmq.plugins.loading import Plugins
from flockmq.redis.connection import RedisConfig
from flockmq.redis.errors import RedisUnreachable
from flockmq.rlog.disk import Disk
from flockmq.rlog.errors import LogRefused
from flockmq.rlog.rlog import Rlog
from flockmq.routing.router import Router
from flockmq.routing.shared_groups import STRATEGIES
from flockmq.routing.sink import SinkHost
from flockmq.session.limits import Limits
from flockmq.telemetry.counters import Counters
from flockmq.transport.reactor import Reactor

log: Final = logging.getLogger(__name__)

CAST_OUT_CHECK_S: Final = 1.0


class Machine(NamedTuple):
    """The environment of a node. A simulation passes its own."""

    reactor: Callable[[Router, Limits, Clock], Reactor]
    redis: RedisConfig
    disk: Disk | None
    """Where a core keeps its snapshots; None if the node isn't a core."""
    bind: Bind | None = None
    """Opens the listener for links; None means on this machine's network."""
    clock: Clock = SYSTEM_CLOCK
    entropy: Entropy = SYSTEM_ENTROPY
    speaks: int = NEWEST
    """The highest cluster version that the node speaks. A lower value makes it act as an older release."""
    own_redis: OwnRedis | None = None
    """Set if `redis` is embedded in this node."""
    memory: NodeMemory = ANY_MEMORY
    """What the node may use, and uses."""


@dataclass
class Assembly:
    """The parts of one node. `purged` is set when the cluster has purged this incarnation."""

    config: Config
    limits: dict[str, Limits]
    """By zone name."""
    node: Node
    cluster: Cluster
    rlog: Rlog
    purged: asyncio.Event
    settings: HotSettings

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Inside the block, the node is a member of the cluster with complete tables. Raises UserError."""
        node, cluster, rlog = self.node, self.cluster, self.rlog
        async with contextlib.AsyncExitStack() as stack:
            stack.callback(node.plugin_hooks.plugins.stop)
            node.plugin_hooks.plugins.start(
                self.config.node.name, self.config.plugins.settings, node.left.send_as_plugin
            )
            stack.push_async_callback(rlog.stop)
            stack.callback(node.delivery.stop)
            stack.push_async_callback(cluster.stop)  # before the log: a leader that leaves purges its own rows
            try:
                await cluster.start()
            except OSError as error:
                raise cannot_bind(
                    "cluster.listen", Address(*(cluster.settings.listen or ("", 0))), "--cluster-listen", error
                ) from None
            is_refused = False
            try:
                await rlog.start()
            except RedisUnreachable as error:
                raise RedisUnavailable(str(error)) from None
            except LogRefused as error:
                log.warning("%s: this node was purged before it was a member", error)
                is_refused = True
            self.settings.look()
            # This comes before the node gets slots. Otherwise it would accept messages for them and lose these.
            if node.durable_host is not None:
                await node.durable_host.start()
                stack.push_async_callback(node.durable_host.stop)
            node.session_rpc.start()
            stack.push_async_callback(node.session_rpc.stop)
            await come_in(self.purged, node, is_refused=is_refused)
            await node.access.auth.start()
            stack.push_async_callback(node.access.auth.stop)
            node.reactor.start(asyncio.get_running_loop())
            stack.callback(node.reactor.stop)
            for name, work in (
                ("lag", node.sample_lag),
                ("shortage", node.shortage.watch),
                ("quotas", node.quotas.watch),
                ("loop", node.loop_watch.run),
                ("system", node.system.run),
                ("delayed", node.left.delayed.run),
                ("retained", node.retaining.watch_expired),
                ("access", node.access.watch),
                ("sessions", node.watch_sessions),
                ("traffic", node.traffic.run),
                ("rebalancing", node.rebalancing.run),
                ("settings", partial(self.settings.watch, cluster)),
            ):
                stack.callback(tasks.restartable(work, f"node-{name}").cancel)
            stack.push_async_callback(node.close_clients)
            yield

    async def stay(self) -> None:
        """A member until cancelled, and then until its clients are sent to others."""
        staying = asyncio.create_task(self._stay())
        try:
            await asyncio.shield(staying)
        except asyncio.CancelledError:
            await self.node.drain()
            raise
        finally:
            staying.cancel()
            await asyncio.wait([staying])

    async def _stay(self) -> None:
        """Whenever the cluster takes it for dead, it comes back."""
        while True:
            await self._until_cast_out()
            await come_back(self.purged, self.node)

    async def _until_cast_out(self) -> None:
        """Wait until this incarnation was purged, or the log refuses its writes."""
        while self.rlog.refused is None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(CAST_OUT_CHECK_S):
                    await self.purged.wait()
                    return


def assemble(
    config: Config, machine: Machine, mqtt_port: int = 0, *, zone_keys: frozenset[str] = frozenset()
) -> Assembly:
    """`mqtt_port` is the port that other nodes show for this node, `zone_keys` as in `Loaded`. Needs a running event
    loop. Raises ConfigError."""
    clock, entropy = machine.clock, machine.entropy
    zones = {"default": config.mqtt, **config.zones}
    limits = {name: _limits(name, zone) for name, zone in zones.items()}
    router = Router(
        SinkHost(Counters()),
        min(zone.max_packet_size for zone in zones.values()),
        min(zone.max_topic_levels for zone in zones.values()),
        entropy.random.getrandbits(64),
        _match_cache_bytes(machine.memory),
    )
    plugin_hooks = PluginHooks(router, Plugins(config.plugins.enabled, clock), config.rewrite, config.auto_subscribe)
    router.shared.strategy = STRATEGIES[config.mqtt.shared_subscription_strategy]
    purged = asyncio.Event()
    settings = _membership_settings(config, mqtt_port, machine.speaks, entropy)
    cluster = Cluster(settings, machine.redis, machine.bind, entropy, clock)
    delivery = Delivery(router.turn, cluster)
    cluster.on_purged = purged.set
    cluster.readiness.own_redis = machine.own_redis
    rlog = Rlog(
        cluster.incarnation,
        machine.redis,
        port=cluster.core_port if config.cluster.seeds or machine.disk is None else None,
        disk=machine.disk,
        votes=cluster.votes,
        clock=cluster.time.clock,
        entropy=entropy,
    )
    auth = AuthService(
        config.authentication,
        config.authorization,
        config.flapping,
        rlog,
        unknown_user_secret=UnknownUserSecret(
            rlog, cluster.settings.keys.own, cluster.version.gate(2), entropy.token_bytes
        ),
        is_leader=lambda: cluster.is_leader,
        clock=clock,
        cluster_clock=cluster.time.clock,
    )
    node = Node(
        router,
        cluster,
        delivery,
        rlog,
        plugin_hooks,
        auth,
        config.sys_topics,
        limits,
        None if machine.disk is None else SessionStore(machine.redis),
        machine.reactor(router, limits["default"], clock),
        config.quotas,
        clock,
        entropy,
        _draining(config),
        _rebalances(config),
        takes_clients=any(named_listeners(config.listeners)),
        memory=machine.memory,
    )
    hot = _hot_settings(Loaded(config, zone_keys), node, auth, rlog, limits)
    node.overview.own_details = partial(_details, hot, node)
    node.core_admin.disk = machine.disk
    node.view.needs_replicant = config.management.readiness_of == "replicants"
    return Assembly(config, limits, node, cluster, rlog, purged, hot)


def _match_cache_bytes(memory: NodeMemory) -> int:
    if not memory.limit_bytes:
        return MATCH_CACHE_MAX_BYTES
    return min(MATCH_CACHE_MAX_BYTES, memory.limit_bytes // MATCH_CACHE_MEMORY_SHARE)


def _hot_settings(loaded: Loaded, node: Node, auth: AuthService, rlog: Rlog, limits: dict[str, Limits]) -> HotSettings:
    """Which part takes which settings when they change. Listeners and the log's level: run.py."""

    def change_limits(config: tuple[MqttSettings, dict[str, MqttSettings]]) -> None:
        limits.update({name: _limits(name, zone) for name, zone in {"default": config[0], **config[1]}.items()})

    settings = HotSettings(loaded, rlog)
    settings.on_change(lambda config: config.quotas, node.quotas.configure)
    settings.on_change(lambda config: config.authentication.failed_logins, auth.chain.failed_logins.configure)
    settings.on_change(lambda config: config.authorization, auth.authorizer.configure)
    settings.on_change(lambda config: config.flapping, auth.configure_flapping)
    settings.on_change(_draining, node.evacuation.configure)
    settings.on_change(_rebalances, node.rebalancing.configure)
    settings.on_change(lambda config: (config.mqtt, config.zones), change_limits)
    return settings


def _details(settings: HotSettings, node: Node) -> NodeDetails:
    config, evacuated, (left, rate) = settings.current, node.evacuation.status(), node.rebalancing.left()
    return NodeDetails(
        cores=node.cluster.settings.cores,
        eviction_rate=config.cluster.eviction_rate,
        balancing=_thresholds(config.cluster.rebalance),
        rebalances=config.cluster.rebalance.enabled,
        left=left,
        rate=rate if left else evacuated.rate,
        evicted=evacuated.evicted,
        asked=node.rebalancing.asked(),
        weights=_weights(config.cluster.rebalance),
    )


def _draining(config: Config) -> Draining:
    return Draining(config.node.drain_timeout, config.cluster.eviction_rate)


def _rebalances(config: Config) -> Rebalances:
    settings = config.cluster.rebalance
    return Rebalances(
        _thresholds(settings), _weights(settings), config.cluster.eviction_rate, is_automatic=settings.enabled
    )


def _thresholds(settings: RebalanceSettings) -> Balancing:
    return Balancing(settings.relative_threshold, settings.absolute_threshold or 0, settings.wait)


def _weights(settings: RebalanceSettings) -> Weights:
    return Weights(settings.connections_weight, settings.sessions_weight, settings.messages_weight)


def _limits(name: str, mqtt: MqttSettings) -> Limits:
    """The limits of one zone's clients."""
    others = {*RatesSettings.__struct_fields__, "shared_subscription_strategy"}
    values: dict[str, Any] = {key: getattr(mqtt, key) for key in MqttSettings.__struct_fields__ if key not in others}
    return Limits(name, **values)


def _membership_settings(config: Config, mqtt_port: int, speaks: int, entropy: Entropy) -> MembershipSettings:
    """A single node without a key opens no listener for links. Raises ConfigError."""
    key = config.cluster.key
    alone = key is None
    return MembershipSettings(
        name=config.node.name,
        role=config.role,
        host=config.node.host,
        mqtt_port=mqtt_port,
        version=__version__,
        keys=LinkKeys(entropy.token_bytes(32).hex() if key is None else key.reveal(), config.cluster.key_file),
        listen=None if alone else config.cluster.listen,
        seeds=() if alone else config.cluster.seeds,
        cores=config.cluster.cores if config.role != "single" else 1,
        max_stale_s=config.cluster.max_stale,
        speaks=speaks,
        version_settle_s=config.cluster.version_settle,
        via_core=config.cluster.forwarding == "via-core",
        certificates=_link_certificates(config),
    )


def _link_certificates(config: Config) -> LinkCertificates | None:
    """Raises ConfigError."""
    cluster = config.cluster
    if cluster.certfile is None or cluster.keyfile is None or cluster.cacertfile is None:
        return None
    return LinkCertificates(LinkFiles(cluster.certfile, cluster.keyfile, cluster.cacertfile))
