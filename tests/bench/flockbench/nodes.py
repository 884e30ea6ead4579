"""Nodes of FlockMQ that share a Redis of the bench's own: one by one, or a whole cluster."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from flockbench import ours
from flockbench.brokers import Launch, Running, Site
from flockmq.bench import broker_usage

WINDOW: Final = {"FLOCKMQ_MQTT__MAX_INFLIGHT": "1000"}
"""As wide as in the comparison with the peers."""


def one(role: str, environment: Mapping[str, str], *, watched: bool = False) -> Callable[[Site], Launch]:
    """A node that listens for MQTT, for HTTP at the site's first other port, and for other nodes at its second."""
    program = ours.command(str(ours.WATCHED)) if watched else ours.command("-m", "flockmq")

    def launch(site: Site) -> Launch:
        places = ("--listen", f"127.0.0.1:{site.mqtt}", "--management", f"127.0.0.1:{site.others[0]}")
        links = ("--cluster-listen", link_at(site))
        command = (*program, "run", "--role", role, "--data-dir", "data", "--log-level", "warning", *places, *links)
        return Launch(command, {}, {**environment, **WINDOW, "FLOCKMQ_NODE__HOST": "127.0.0.1"})

    return launch


def link_at(site: Site) -> str:
    return f"127.0.0.1:{site.others[1]}"


def together(environment: Mapping[str, str], redis_url: str, cores: int, replicants: int) -> Callable[[Site], Launch]:
    """A cluster by `flockmq dev`; the first replicant is at the site's port for MQTT, the next at the next."""
    size = ("--cores", str(cores), "--replicants", str(replicants))

    def launch(site: Site) -> Launch:
        ports = ("--port", str(site.mqtt), "--management-port", "0")
        command = ours.command("-m", "flockmq", "dev", *size, *ports, "--redis", redis_url)
        return Launch(command, {}, {**environment, **WINDOW})

    return launch


def pids(running: Running) -> dict[str, int]:
    """The nodes of a cluster by their names, `core-1`, `replicant-2`."""
    found: dict[str, int] = {}
    for pid in broker_usage.family([running.pid]):
        settings = (broker_usage.PROC / str(pid) / "environ").read_bytes().split(b"\0")
        found |= {name: pid for each in settings if (name := each.decode().removeprefix(NAME)) != each.decode()}
    return found


NAME: Final = "FLOCKMQ_NODE__NAME="
