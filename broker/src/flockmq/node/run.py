"""One node from start to stop: what is opened in which order, and closed in the reverse.

Clients are let in last and sent away first, while all else runs on. Whoever cancels `run_node` stops the node.
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

from flockmq.config.schema import Config, ManagementSettings
from flockmq.entropy import SYSTEM
from flockmq.management import server
from flockmq.management.api_keys import ApiKeys
from flockmq.management.audit_log import AuditLog
from flockmq.management.tls import ManagementTls
from flockmq.management.view import NodePorts
from flockmq.membership.readiness import OwnRedis
from flockmq.node.assembly import Assembly, Machine, assemble
from flockmq.node.listeners import Listeners
from flockmq.node.redis_startup import redis_config
from flockmq.rlog.disk import Disk
from flockmq.transport.epoll_reactor import EpollReactor

DEFAULT_LISTENER_NAME: Final = "tcp:default"


async def run_node(
    config: Config,
    *,
    ready: Callable[[NodePorts], None] | None = None,
    own_redis: OwnRedis | None = None,
    hurry: asyncio.Event | None = None,
) -> None:
    """Run until cancelled, and then until its clients are sent to other nodes, or `hurry` is set. `ready` is called
    once, when clients can come. Raises UserError."""
    _raise_descriptor_limit()
    is_core = config.role != "replicant"
    disk = Disk(config.node.data_dir) if is_core and config.node.data_dir is not None else None
    async with contextlib.AsyncExitStack() as stack:
        listeners = Listeners(config)
        stack.callback(listeners.close)
        listeners.bind()
        mqtt_port = listeners.ports.get(DEFAULT_LISTENER_NAME)
        machine = Machine(EpollReactor, redis_config(config.redis), disk, own_redis=own_redis)
        made = assemble(config, machine, mqtt_port or 0)
        node, engine = made.node, made.node.reactor
        node.evacuation.hurry = hurry or node.evacuation.hurry
        assert isinstance(engine, EpollReactor)
        certificates = _certificates(config.management)
        tls = None if certificates is None else certificates.listening
        keys = _keys(config.management, made)
        management_port = await stack.enter_async_context(_management(config, made, keys, tls))
        await stack.enter_async_context(made.running())
        listeners.open(engine, made.limits)
        stack.enter_context(listeners.refreshing(keys, *([] if certificates is None else [certificates])))
        node.state = "ready"
        gc.collect()
        gc.freeze()
        if ready is not None:
            link = made.cluster.link_port or None
            ready(NodePorts(mqtt=mqtt_port, listeners=listeners.ports, link=link, management=management_port))
        await made.stay()


def _certificates(management: ManagementSettings) -> ManagementTls | None:
    """Raises ConfigError."""
    if management.certfile is None or management.keyfile is None:
        return None
    return ManagementTls(management.certfile, management.keyfile)


def _keys(management: ManagementSettings, made: Assembly) -> ApiKeys:
    """Raises ConfigError."""
    may_write, clock = made.cluster.version.gate(2), made.cluster.time.clock
    return ApiKeys(made.rlog, management.api_key, may_write, clock, SYSTEM.token_bytes, management.api_key_file)


def _management(
    config: Config, made: Assembly, keys: ApiKeys, tls: ssl.SSLContext | None
) -> AbstractAsyncContextManager[int]:
    node, cluster = made.node, made.cluster
    audit = AuditLog(config.node.name, made.rlog, cluster.version.gate(2), cluster.time.clock, SYSTEM.token_bytes)
    return server.serve(node.views(), config.management.listen, node.access.auth.admin, keys, audit, tls)


def _raise_descriptor_limit() -> None:
    """One descriptor a client: as many as the machine lets us have."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
