"""Runs one node from start to stop: `run_node` opens its parts in order, and closes them in reverse order.

It accepts clients last and disconnects them first, while all other parts run. To stop the node, cancel `run_node`.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import resource
import ssl
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Final

from flockmq import logs
from flockmq.config.schema import Config, ManagementSettings
from flockmq.entropy import SYSTEM
from flockmq.management import server
from flockmq.management.api_keys import ApiKeys
from flockmq.management.audit_log import AuditLog
from flockmq.management.tls import ManagementTls
from flockmq.management.view import NodePorts
from flockmq.membership.readiness import OwnRedis
from flockmq.memory_limit import node_memory
from flockmq.node.assembly import Assembly, Machine, assemble
from flockmq.node.listeners import Listeners, listening_settings
from flockmq.node.redis_startup import redis_config
from flockmq.node.settings_admin import SettingsAdmin
from flockmq.rlog.disk import Disk
from flockmq.transport.epoll_reactor import EpollReactor

DEFAULT_LISTENER_NAME: Final = "tcp:default"


async def run_node(
    config: Config,
    *,
    zone_keys: frozenset[str] = frozenset(),
    ready: Callable[[NodePorts], None] | None = None,
    own_redis: OwnRedis | None = None,
    hurry: asyncio.Event | None = None,
    end: Callable[[], None] | None = None,
) -> None:
    """Run until cancelled. Then send the clients to other nodes, or disconnect them at once if `hurry` is set. Calls
    `ready` once, when the node accepts clients, and `end` when an operator has this core leave: it cancels this call.
    `zone_keys`: as in `Loaded`. Raises UserError."""
    _raise_descriptor_limit()
    is_core = config.role != "replicant"
    disk = Disk(config.node.data_dir) if is_core and config.node.data_dir is not None else None
    async with contextlib.AsyncExitStack() as stack:
        memory = node_memory(has_valkey=own_redis is not None, max_bytes=config.node.max_memory)
        listeners = Listeners(config, memory.limit_bytes)
        stack.callback(listeners.close)
        listeners.bind()
        mqtt_port = listeners.ports.get(DEFAULT_LISTENER_NAME)
        machine = Machine(EpollReactor, redis_config(config.redis), disk, own_redis=own_redis, memory=memory)
        assembly = assemble(config, machine, mqtt_port or 0, zone_keys=zone_keys)
        assembly.settings.on_change(lambda config: config.log.level, logs.set_level)
        node, reactor = assembly.node, assembly.node.reactor
        node.evacuation.hurry = hurry or node.evacuation.hurry
        node.core_admin.end = end or node.core_admin.end
        assert isinstance(reactor, EpollReactor)
        certificates = _certificates(config.management)
        tls = None if certificates is None else certificates.listening
        keys = _keys(config.management, assembly)
        management_port = await stack.enter_async_context(_management(config, assembly, keys, tls))
        await stack.enter_async_context(assembly.running())
        listeners.open(reactor, assembly.limits)
        listeners.configure(listening_settings(assembly.settings.current))
        assembly.settings.on_change(listening_settings, listeners.configure)
        stack.enter_context(listeners.refreshing(keys, *([] if certificates is None else [certificates])))
        node.state = "ready"
        gc.collect()
        gc.freeze()
        if ready is not None:
            link = assembly.cluster.link_port or None
            ready(NodePorts(mqtt=mqtt_port, listeners=listeners.ports, link=link, management=management_port))
        await assembly.stay()


def _certificates(management: ManagementSettings) -> ManagementTls | None:
    """The certificate of the management server, if one is configured. Raises ConfigError."""
    if management.certfile is None or management.keyfile is None:
        return None
    return ManagementTls(management.certfile, management.keyfile)


def _keys(management: ManagementSettings, assembly: Assembly) -> ApiKeys:
    """The API keys of the management server. Raises ConfigError."""
    may_write, clock = assembly.cluster.version.gate(2), assembly.cluster.time.clock
    return ApiKeys(assembly.rlog, management.api_key, may_write, clock, SYSTEM.token_bytes, management.api_key_file)


def _management(
    config: Config, assembly: Assembly, keys: ApiKeys, tls: ssl.SSLContext | None
) -> AbstractAsyncContextManager[int]:
    node, cluster = assembly.node, assembly.cluster
    knows_tables, clock = cluster.version.gate(2), cluster.time.clock
    audit = AuditLog(config.node.name, assembly.rlog, knows_tables, clock, SYSTEM.token_bytes)
    views = node.views(SettingsAdmin(assembly.settings, assembly.rlog, knows_tables, clock))
    admins = node.access.auth.admin, node.quotas.admin
    return server.serve(views, config.management.listen, *admins, keys, audit, tls)


def _raise_descriptor_limit() -> None:
    """Each client needs a file descriptor, so allow as many as the system permits."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
