"""The network of a lab: a bridge, and for each host a network of its own with one link to it, that can be made worse.

    10.77.0.1 the clients ── bridge ──┬─ 10.77.0.5 redis …
                                      ├─ 10.77.0.11 core-1 …
                                      └─ 10.77.0.21 replicant-1 …

What a host gets is dropped by who sent it (cuts), or at random; or held back for a while, both ways, by delay.py.
"""

from __future__ import annotations

from typing import Final

from faults import sandbox
from faults.delay import QUEUE, Delay

LAB: Final = "10.77.0.1"
QUEUED: Final = ("-j", "NFQUEUE", "--queue-num", str(QUEUE))


def by_chance(percent: float) -> tuple[str, ...]:
    """The rule that drops so many packets."""
    return "-m", "statistic", "--mode", "random", "--probability", f"{percent / 100:.3f}", "-j", "DROP"


def furnish() -> None:
    """Once, inside the sandbox."""
    sandbox.run("ip", "link", "add", "lab", "type", "bridge")
    sandbox.run("ip", "address", "add", f"{LAB}/24", "dev", "lab")
    sandbox.run("ip", "link", "set", "lab", "up")


class Wire:
    """One host's link."""

    def __init__(self, host: str, address: str) -> None:
        self._host = host
        self._lost = 0.0
        self._delay: Delay | None = None
        sandbox.run("ip", "netns", "add", host)
        veth = f"v-{host}"
        sandbox.run("ip", "link", "add", veth, "type", "veth", "peer", "name", "eth0", "netns", host)
        sandbox.run("ip", "link", "set", veth, "master", "lab", "up")
        sandbox.run("ip", "-n", host, "address", "add", f"{address}/24", "dev", "eth0")
        for device in ("eth0", "lo"):
            sandbox.run("ip", "-n", host, "link", "set", device, "up")

    def inside(self, *program: str) -> list[str]:
        """What runs a program on this host's network."""
        return ["nsenter", f"--net=/run/netns/{self._host}", *program]

    def cut(self, source: str) -> None:
        """Nothing of this address comes any more; as often as it is cut it must be mended."""
        self._rule("-A", "INPUT", "-s", source, "-j", "DROP")

    def mend(self, source: str) -> None:
        self._rule("-D", "INPUT", "-s", source, "-j", "DROP")

    def lose(self, percent: float) -> None:
        """So many packets, of those that go and of those that come."""
        for action, lost in (("-D", self._lost), ("-A", percent)):
            if lost:
                self._rule(action, "INPUT", "-i", "eth0", *by_chance(lost))
                self._rule(action, "OUTPUT", "-o", "eth0", *by_chance(lost))
        self._lost = percent

    def slow_down(self, delay_s: float) -> None:
        """Every packet, of those that go and of those that come, takes so much longer."""
        if self._delay is not None:
            self._hold_back("-D")
            self._delay.close()
            self._delay = None
        if delay_s:
            self._delay = Delay(self._host, delay_s)
            self._hold_back("-A")

    def _hold_back(self, action: str) -> None:
        """In a table that comes first: a packet that is let through has not yet met the others."""
        self._rule(action, "INPUT", "-i", "eth0", *QUEUED, table="mangle")
        self._rule(action, "OUTPUT", "-o", "eth0", *QUEUED, table="mangle")

    def _rule(self, action: str, *rule: str, table: str = "filter") -> None:
        sandbox.run(*self.inside("iptables", "-w", "-t", table, action, *rule))
