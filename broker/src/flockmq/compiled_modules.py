"""The list of modules that mypyc compiles, and whether they run compiled.

`setup.py` compiles `HOT_MODULES`, `flockmq --version` reports their state, and tests check it. The same source also
runs interpreted. `__init__.py` files are never compiled. This file imports only the standard library, because
`setup.py` runs it before anything is installed.
"""

from __future__ import annotations

from importlib.machinery import EXTENSION_SUFFIXES
from importlib.util import find_spec
from pathlib import Path
from typing import Final

HOT_MODULES: Final = (
    *("mqtt/*.py", "routing/*.py", "session/*.py", "protocol/*.py", "transport/*.py"),
    *("rlog/change.py", "rlog/route_table.py", "rlog/table.py", "rlog/table_spec.py"),
    *("delivery/batch_queue.py", "delivery/slot_acceptance.py"),
    *("delivery/slot_back_pressure.py", "delivery/slot_sender.py"),
    *("durable/attach_admission.py", "durable/commit_queue.py", "durable/connected_sessions.py"),
    *("durable/incoming.py", "durable/message_intake.py", "durable/message_queue.py"),
    *("durable/outgoing.py", "durable/pending_writes.py", "durable/proxy_sink.py", "durable/restored_session.py"),
    *("durable/router.py", "durable/session.py", "durable/session_fields.py", "durable/session_record.py"),
    *("durable/session_service.py", "durable/session_table.py", "durable/session_usage.py"),
    *("session_rpc/client_registry.py", "session_rpc/notes.py", "session_rpc/server.py"),
    *("node/access_control.py", "node/connections.py", "node/connection_registrations.py"),
    "listening_sockets.py",
    "telemetry/counters.py",
)
"""Globs below the package's folder. mypyc compiles these files as one group."""

PACKAGE: Final = Path(__file__).parent


def hot_sources(package: Path = PACKAGE) -> list[Path]:
    """The files that match `HOT_MODULES`, sorted."""
    return sorted(p for glob in HOT_MODULES for p in package.glob(glob) if p.name != "__init__.py")


def module_name(source: Path, package: Path = PACKAGE) -> str:
    """`…/flockmq/mqtt/frame.py` → `flockmq.mqtt.frame`."""
    return ".".join((package.name, *source.relative_to(package).with_suffix("").parts))


def is_compiled(module: str) -> bool:
    """Whether `module` is an extension module."""
    spec = find_spec(module)
    return spec is not None and (spec.origin or "").endswith(tuple(EXTENSION_SUFFIXES))


def kind() -> str:
    """`compiled`, `interpreted`, or `partly compiled`, which is a broken installation that `make build` repairs."""
    found = {is_compiled(module_name(source)) for source in hot_sources()}
    if found == {True}:
        return "compiled"
    return "partly compiled" if True in found else "interpreted"
