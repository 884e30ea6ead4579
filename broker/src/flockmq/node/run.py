"""One node from start to stop: what is opened in which order, and closed in the reverse.

Clients are let in last and sent away first. Whoever cancels `run_node` stops the node.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import resource
from collections.abc import AsyncIterator, Callable
from typing import Final

from flockmq import __version__, tasks
from flockmq.auth.service import Auth
from flockmq.cluster.certificates import LinkCertificates, LinkFiles
from flockmq.cluster.handshake import KEY_MIN_BYTES
from flockmq.cluster.service import Cluster
from flockmq.cluster.views import ClusterSettings
from flockmq.config.schema import Config, Mqtt
from flockmq.config.values import Address
from flockmq.entropy import SYSTEM, Entropy
from flockmq.errors import ConfigError, RedisUnreachable, cannot_bind
from flockmq.home.store import Store
from flockmq.management import server
from flockmq.management.view import NodePorts
from flockmq.node.hooking import Hooking
from flockmq.node.listeners import Bound
from flockmq.node.node import Node
from flockmq.node.rejoin import rejoin
from flockmq.plugins.running import Plugins
from flockmq.redis_probe import redis_config
from flockmq.rlog import errors as rlog_errors
from flockmq.rlog.rlog import Rlog
from flockmq.session.counters import Counters
from flockmq.session.groups import STRATEGIES
from flockmq.session.limits import Limits
from flockmq.session.router import Router

log: Final = logging.getLogger(__name__)

DEFAULT_LISTENER_NAME: Final = "tcp:default"
CAST_OUT_CHECK_S: Final = 1.0


async def run_node(config: Config, *, ready: Callable[[NodePorts], None] | None = None) -> None:
    """Run until cancelled; `ready` is called once, when clients can come. Raises UserError."""
    _raise_descriptor_limit()
    purged = asyncio.Event()
    async with contextlib.AsyncExitStack() as stack:
        listeners = Bound(config)
        stack.callback(listeners.close)
        listeners.bind()
        mqtt_port = listeners.ports.get(DEFAULT_LISTENER_NAME)
        zones = {"default": config.mqtt, **config.zones}
        limits = {name: _limits(name, zone, config.node.max_connections) for name, zone in zones.items()}
        router = Router(
            Counters(),
            min(zone.max_packet_size for zone in zones.values()),
            min(zone.max_topic_levels for zone in zones.values()),
            SYSTEM.random.getrandbits(64),
        )
        hooking = Hooking(router, Plugins(config.plugins.enabled), config.rewrite, config.auto_subscribe)
        router.shared.strategy = STRATEGIES[config.mqtt.shared_subscription_strategy]
        redis = redis_config(config.redis)
        is_core = config.role != "replicant"
        cluster = Cluster(_cluster_settings(config, mqtt_port or 0, SYSTEM), router.turn, redis)
        cluster.on_purged = purged.set
        rlog = Rlog(
            cluster.incarnation,
            redis,
            port=cluster.core_port if config.cluster.seeds or not is_core else None,
            data_dir=config.node.data_dir if is_core else None,
            ballot=cluster.ballot,
        )
        auth = Auth(
            config.authentication,
            config.authorization,
            config.flapping,
            rlog,
            pepper=cluster.settings.key,
            is_leader=lambda: cluster.is_leader,
        )
        node = Node(
            config.role,
            config.node.name,
            limits["default"],
            router,
            cluster,
            rlog,
            hooking,
            auth,
            config.sys_topics,
            limits,
            Store(redis) if is_core else None,
        )
        stack.callback(hooking.plugins.stop)
        hooking.plugins.start(config.node.name, config.plugins.settings, node.send_as_plugin)
        management_port = await stack.enter_async_context(
            server.serve(node.view, config.management.listen, auth.admin, config.management.api_key)
        )
        await stack.enter_async_context(_running(node, cluster, rlog))
        listeners.open(node.engine, limits)
        stack.enter_context(listeners.refreshing())
        node.state = "ready"
        gc.collect()
        gc.freeze()
        if ready is not None:
            link = cluster.link_port or None
            ready(NodePorts(mqtt=mqtt_port, listeners=listeners.ports, link=link, management=management_port))
        while True:
            await _until_cast_out(purged, rlog)
            await _come_back(purged, node)


async def _until_cast_out(purged: asyncio.Event, rlog: Rlog) -> None:
    """The cluster goes on without this incarnation: its rows are gone, or the log takes no more from it."""
    while rlog.refused is None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(purged.wait(), CAST_OUT_CHECK_S)
            return


async def _come_back(purged: asyncio.Event, node: Node) -> None:
    """However often the cluster takes it for dead meanwhile."""
    while True:
        purged.clear()
        try:
            await rejoin(node)
            return
        except rlog_errors.LogRefused as refused:
            log.warning("%s: this node was purged again before it was back", refused)


@contextlib.asynccontextmanager
async def _running(node: Node, cluster: Cluster, rlog: Rlog) -> AsyncIterator[None]:
    """Member of the cluster, tables complete, epoll running; all of it closed behind the block."""
    async with contextlib.AsyncExitStack() as stack:
        stack.push_async_callback(rlog.stop)
        stack.push_async_callback(cluster.stop)  # before the log: a leader that leaves purges its own rows
        try:
            await cluster.start()
        except OSError as error:
            raise cannot_bind(
                "cluster.listen", Address(*(cluster.settings.listen or ("", 0))), "--cluster-listen", error
            ) from None
        try:
            await rlog.start()
        except rlog_errors.RedisUnreachable as error:
            raise RedisUnreachable(str(error)) from None
        # before a member is given slots: what comes for slots that no home here knows of would be accepted, and nowhere
        if node.hosting is not None:
            await node.hosting.start()
            stack.push_async_callback(node.hosting.stop)
        node.homes.start()
        stack.push_async_callback(node.homes.stop)
        await cluster.join()
        await node.access.auth.start()
        stack.push_async_callback(node.access.auth.stop)
        node.engine.start(asyncio.get_running_loop())
        stack.callback(node.engine.stop)
        for work in (
            node.sample_lag,
            node.loop_watch.run,
            node.system.run,
            node.delayed.run,
            node.retaining.watch_expired,
            node.access.watch,
            node.watch_sessions,
        ):
            stack.callback(tasks.begun_anew(work, work.__qualname__).cancel)
        stack.push_async_callback(node.close_clients)
        yield


def _limits(name: str, mqtt: Mqtt, max_connections: int) -> Limits:
    """What the clients of one zone may do."""
    return Limits(
        name,
        max_packet_size=mqtt.max_packet_size,
        max_clientid_len=mqtt.max_clientid_len,
        max_topic_levels=mqtt.max_topic_levels,
        max_qos_allowed=mqtt.max_qos_allowed,
        max_topic_alias=mqtt.max_topic_alias,
        retain_available=mqtt.retain_available,
        wildcard_subscription=mqtt.wildcard_subscription,
        shared_subscription=mqtt.shared_subscription,
        exclusive_subscription=mqtt.exclusive_subscription,
        max_inflight=mqtt.max_inflight,
        max_mqueue_len=mqtt.max_mqueue_len,
        mqueue_store_qos0=mqtt.mqueue_store_qos0,
        max_awaiting_rel=mqtt.max_awaiting_rel,
        await_rel_timeout=mqtt.await_rel_timeout,
        session_expiry_interval=mqtt.session_expiry_interval,
        max_session_expiry_interval=mqtt.max_session_expiry_interval,
        keepalive_multiplier=mqtt.keepalive_multiplier,
        server_keepalive=mqtt.server_keepalive,
        idle_timeout=mqtt.idle_timeout,
        max_subscriptions=mqtt.max_subscriptions,
        max_wildcard_shapes=mqtt.max_wildcard_shapes,
        response_information=mqtt.response_information,
        server_reference=mqtt.server_reference,
        max_connections=max_connections,
    )


def _cluster_settings(config: Config, mqtt_port: int, entropy: Entropy) -> ClusterSettings:
    """A single node without a key keeps to itself: no link is listened for. Raises ConfigError."""
    key = config.cluster.key
    alone = key is None
    if key is not None and len(key.reveal().encode()) < KEY_MIN_BYTES:
        raise ConfigError(f"cluster.key_file: the key must have at least {KEY_MIN_BYTES} bytes")
    return ClusterSettings(
        name=config.node.name,
        role=config.role,
        host=config.node.host,
        mqtt_port=mqtt_port,
        version=__version__,
        key=entropy.token_bytes(32) if key is None else key.reveal().encode(),
        listen=None if alone else config.cluster.listen,
        seeds=() if alone else config.cluster.seeds,
        cores=config.cluster.cores if config.role != "single" else 1,
        max_stale_s=config.cluster.max_stale,
        via_core=config.cluster.forwarding == "via-core",
        certificates=_link_certificates(config),
    )


def _link_certificates(config: Config) -> LinkCertificates | None:
    """Raises ConfigError."""
    cluster = config.cluster
    if cluster.certfile is None or cluster.keyfile is None or cluster.cacertfile is None:
        return None
    return LinkCertificates(LinkFiles(cluster.certfile, cluster.keyfile, cluster.cacertfile))


def _raise_descriptor_limit() -> None:
    """One descriptor a client: as many as the machine lets us have."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
