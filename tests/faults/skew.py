"""`make skew`: a rolling upgrade from the release before to this tree, back, and again, under load.

Nodes of both releases, real processes, are one cluster. One after the other is drained and comes back as the other
release: first with a long `cluster.version_settle`, so that all can be rolled back; then with none, so the leader
raises the cluster's version. Every message is accounted for, and no node may have met what it doesn't understand. In
the end a node of the older release comes, and must hear why it isn't let in. The last line is that of a campaign; it
ends with 1 if anything was found.

RELEASED names the commit of the release before.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import re
import subprocess
import sys
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from math import inf
from pathlib import Path
from typing import Final

import uvloop

from faults import sandbox, watch
from faults.campaign import say, tell
from faults.chapter import play_while
from faults.host import Host
from faults.inject import run_step
from faults.lab import Lab
from faults.node_host import HERE, NO_ANSWER, TESTS, THIS, Release
from faults.schedule import Planned, Step
from faults.tally import Tally
from flockmq import bounds
from flockmq.membership.cluster_version import NEWEST, OLDEST
from judges.delayed import DELAYED_ORDER
from judges.exclusive import REFUSED_ITS_OWN, TWO_HOLDERS
from judges.verdict import Finding, Rules, Verdict
from load.clients import Load
from load.history import AnyEvent, Unwell
from load.profiles import PROFILES
from load.stage import Stage

RELEASED: Final = Path(__file__).resolve().with_name("RELEASED")
TRIED: Final = Release(HERE, {"CLUSTER__VERSION_SETTLE": "1h"})
"""This tree, while it may be rolled back."""
ORDER: Final = ("core-3", "core-2", "replicant-2", "core-1", "replicant-1")
"""In which nodes are replaced; of a real upgrade cores and replicants go at the same time."""
MIXED: Final = "replicant-2"
"""Behind it both releases have a core and a replicant."""
MIXED_S: Final = bounds.LOG_CHECKPOINT_EVERY_S + 2.0
"""In which all have compared their tables with one another's."""
NEWLY_KEPT: Final = (DELAYED_ORDER, TWO_HOLDERS, REFUSED_ITS_OWN)
"""What the release before breaks (docs/faults.md), and this tree keeps: judged when all nodes are of this tree. (Of two
holders one is refused when it asks again.)"""
TAKEN_BEFORE_S: Final = 5.0
"""What nodes of the release before took has come by then."""
DOWN_S: Final = 0.2
RAISED_MAX_S: Final = 20.0
REFUSED_MAX_S: Final = 20.0
POLL_S: Final = 0.2
REFUSED: Final = "the cluster is at version"
NOT_UNDERSTOOD: Final = re.compile(
    r"no table has number|are not those of a majority|isn't well-formed|this version doesn't know|it sent .* frame"
    r"|the core had|unknown field|doesn't serve|Traceback"
)
"""What a node says that met what it doesn't know."""


class Upgrade:
    """What happens to a lab under load; what is found is put to `events`."""

    def __init__(self, lab: Lab, older: Release, logs: Path, events: list[AnyEvent]) -> None:
        self._lab = lab
        self._older = older
        self._logs = logs
        self._events = events
        self.all_newer_at = inf
        """Since when no node of the release before is there, nor what one took."""

    async def happen(self, over: asyncio.Event, calm: Callable[[], Awaitable[None]]) -> list[asyncio.Task[None]]:
        with suppress(TimeoutError):
            await self._roll(TRIED, over, calm, mixed_s=MIXED_S)
            await self._reach(OLDEST)
            await self._roll(self._older, over, calm)
            await self._roll(THIS, over, calm)
            await self._reach(NEWEST)
            self.all_newer_at = _now() + TAKEN_BEFORE_S
        return []

    async def _roll(
        self, release: Release, over: asyncio.Event, calm: Callable[[], Awaitable[None]], mixed_s: float = 0.0
    ) -> None:
        """Raises TimeoutError when not all were well in time: nothing more is tried."""
        for name in ORDER:
            say(f"    {name} becomes {'this tree' if release.sources == HERE else 'the release before'}")
            self._lab.nodes[name].release = release
            drain = Planned(f"drain {name.partition('-')[0]}", (name,), DOWN_S)
            await run_step(self._lab, self._events.append, Step((drain,), 0.0), over)
            await calm()
            if any(isinstance(event, Unwell) for event in self._events):
                raise TimeoutError
            if name == MIXED:
                await asyncio.sleep(mixed_s)

    async def _reach(self, version: int) -> None:
        """All nodes are at this cluster version soon, and at no other."""
        deadline = _now() + RAISED_MAX_S
        while (versions := await self._versions()) != [version] * len(ORDER):
            if _now() > deadline:
                self._events.append(Unwell(_now(), "all", f"the cluster's version is {versions}, not {version}"))
                return
            await asyncio.sleep(POLL_S)
        say(f"    the cluster is at version {version}")

    async def _versions(self) -> list[float]:
        try:
            told = await asyncio.gather(*(self._lab.nodes[name].samples() for name in ORDER))
        except NO_ANSWER:
            return []
        return [watch.value(samples, "flockmq_cluster_version") for samples in told]

    def counts(self, finding: Finding) -> bool:
        return finding.kind not in NEWLY_KEPT or finding.at > self.all_newer_at

    def not_understood(self) -> list[str]:
        """What nodes said so far that met what they don't know, the first of each."""
        logs = {name: (self._logs / f"{name}.log").read_text(errors="replace").splitlines() for name in ORDER}
        said = {name: [line for line in lines if NOT_UNDERSTOOD.search(line)] for name, lines in logs.items()}
        return [f"{name} said, {len(lines)} times or the like: {lines[0]}" for name, lines in said.items() if lines]

    async def latecomer(self) -> list[str]:
        """A node of the release before comes to a cluster that was raised: what is wrong."""
        node = self._lab.nodes[MIXED]
        log = self._logs / f"{MIXED}.log"
        before = len(log.read_text(errors="replace"))
        await node.drain()
        node.release = self._older
        await node.start()
        deadline = _now() + REFUSED_MAX_S
        while REFUSED not in (said := log.read_text(errors="replace")[before:]):
            if _now() > deadline:
                return [f"{MIXED} of the release before wasn't told that it is refused; it said: {said[-300:]}"]
            await asyncio.sleep(POLL_S)
        say(f"    {MIXED} of the release before is refused, and told why")
        return []


async def skew(options: argparse.Namespace) -> int:
    say(f"from {options.ref} to this tree and back, seed {options.seed}; logs in {options.out}")
    events: list[AnyEvent] = []

    def ended(host: Host, code: int, last_words: str) -> None:
        events.append(Unwell(_now(), host.name, f"exit code {code}: {last_words}"))

    lab = Lab(options.out, cores=3, replicants=2, on_end=ended)
    older = Release(_sources(options.out), {})
    for node in lab.nodes.values():
        node.release = older
    upgrade = Upgrade(lab, older, options.out, events)
    stage = Stage(events.append, lab.fronts, random.Random(options.seed), None)
    tally = Tally()
    try:
        with tally.timed("lab"):
            await lab.start()
        load = Load(stage, 1, options.profile, options.rate)
        rules = Rules(is_one_release=False)
        verdict = await play_while(lab, load, upgrade.happen, events, options.patience, tally.timed, rules)
        verdict = Verdict(verdict.acknowledged, [found for found in verdict.findings if upgrade.counts(found)])
        tally.add(events, verdict)
        tell(options, 1, events, verdict)
        with tally.timed("latecomer"):
            wrong = upgrade.not_understood() + await upgrade.latecomer()
    finally:
        await lab.stop()
    say(*tally.table(), *wrong, tally.last_line())
    return int(bool(wrong) or tally.found.total() > 0)


def _now() -> float:
    return asyncio.get_running_loop().time()


def _sources(out: Path) -> Path:
    return out / "older" / "broker" / "src"


def unpack(ref: str, out: Path) -> None:
    """The older release's package. Raises SystemExit if this clone hasn't got it."""
    git = ["git", "-C", str(TESTS.parent)]
    found = subprocess.run(
        [*git, "rev-parse", "--verify", "--quiet", f"{ref}^{{commit}}"], capture_output=True, text=True, check=False
    )
    if found.returncode:
        said = found.stderr.strip()
        sys.exit(
            f"skew: this clone has no commit {ref}, the release before ({RELEASED})"
            + (f": {said}" if said else "; a shallow clone gets it by: git fetch --unshallow --tags")
        )
    (out / "older").mkdir(parents=True)
    packed = subprocess.run([*git, "archive", ref, "broker/src"], stdout=subprocess.PIPE, check=True)
    subprocess.run(["tar", "-x", "-C", str(out / "older")], input=packed.stdout, check=True)


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="faults.skew", description="A rolling upgrade, and back, under load.")
    made.add_argument("--ref", default=RELEASED.read_text().strip(), help="the release before (default: of RELEASED)")
    made.add_argument("--seed", type=int, default=1, help="of the load (default: 1)")
    made.add_argument("--profile", choices=tuple(PROFILES), default="stored", help="of the load (default: stored)")
    made.add_argument("--rate", type=float, default=100.0, help="messages a second (default: 100)")
    made.add_argument("--patience", type=float, default=30.0, help="seconds for all to be quiet (default: 30)")
    made.add_argument("--out", type=Path, default=Path("build/skew"), help="for logs, history and the older release")
    made.add_argument("--keep", action="store_true", help="the history, also where nothing is found")
    return made


def main(arguments: Sequence[str] | None = None) -> int:
    options = parser().parse_args(arguments)
    if absent := sandbox.missing():
        print(f"skew: this machine has no {', '.join(absent)}", file=sys.stderr)
        return 2
    options.out = options.out.absolute()
    if not sandbox.is_inside():
        subprocess.run(["rm", "-rf", str(options.out)], check=True)
        unpack(options.ref, options.out)
        return sandbox.enter([sys.executable, "-m", "faults.skew", *sys.argv[1:]])
    sandbox.furnish()
    return uvloop.run(skew(options))


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    os._exit(code)
