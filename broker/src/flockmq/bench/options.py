"""The options of `flockmq bench`. Separate from the measurements, so that `flockmq --help` imports only this file."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeVar

from flockmq.bench.message_ring import PAYLOAD_MIN_BYTES, PUBLISHERS_MAX

URL: Final = "mqtt://127.0.0.1:1883"
P = TypeVar("P", bound=argparse.ArgumentParser)

DESCRIPTION: Final = """\
Measure an MQTT broker, this one or any other, and check every message.

  throughput  messages delivered a second: flockmq bench throughput --publishers 10 --subscribers 10 --qos 1
  latency     one message in flight: percentiles of publish to delivery
  connects    CONNECT to CONNACK, a second
  subscribes  one SUBSCRIBE in flight: percentiles of SUBSCRIBE to SUBACK
  idle        what a connection with a subscription costs in memory: flockmq bench idle --connections 10000 --pid PID
"""


def add_parser(commands: argparse._SubParsersAction[P]) -> None:
    bench = commands.add_parser(
        "bench",
        help="measure an MQTT broker",
        description=DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    kinds = bench.add_subparsers(dest="measurement", metavar="MEASUREMENT", required=True)
    for name, add_own, times in (
        ("throughput", _throughput_options, True),
        ("latency", _latency_options, True),
        ("connects", _connects_options, True),
        ("subscribes", _subscribes_options, True),
        ("idle", _idle_options, False),
    ):
        parser = kinds.add_parser(name, help=f"see flockmq bench {name} --help", allow_abbrev=False)
        _common_options(parser, times)
        add_own(parser)


def number(least: int, most: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            value = least - 1
        if not least <= value <= most:
            raise argparse.ArgumentTypeError(f"{text!r} must be a whole number from {least} to {most}")
        return value

    return parse


def seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value <= 86_400:
        raise argparse.ArgumentTypeError(f"{text!r} must be a number of seconds from 0 to 86400")
    return value


def _common_options(parser: argparse.ArgumentParser, times: bool) -> None:
    add = parser.add_argument
    add("url", nargs="?", default=URL, metavar="URL", help=f"mqtt, mqtts, ws or wss (default: {URL})")
    add("--username", metavar="NAME", help="user name for all connections")
    add("--password-file", type=Path, metavar="FILE", help="file with the password")
    add("--cafile", type=Path, metavar="FILE", help="certificates to trust (default: the system's)")
    add("--insecure", action="store_true", help="accept any certificate")
    add("--prefix", default="bench", metavar="TEXT", help="prefix of topics and client ids (default: bench)")
    add(
        "--pid",
        type=number(1, 1 << 22),
        action="append",
        default=[],
        help="process of the broker on this machine; measures its CPU and memory",
    )
    add("--json", action="store_true", help="print the figures as one line of JSON")
    if times:
        add("--seconds", type=seconds, default=5.0, metavar="S", help="duration of the measurement (default: 5)")
        add("--warmup", type=seconds, default=1.0, metavar="S", help="warm-up before it (default: 1)")


def _message_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--qos", type=number(0, 2), default=0, metavar="N", help="of publishing and subscribing (default: 0)")
    add("--payload", type=number(PAYLOAD_MIN_BYTES, 16 << 20), default=64, metavar="N", help="bytes (default: 64)")
    add("--subscribe-at", metavar="URL", help="subscribe at another node of the same cluster")
    add("--settle", type=seconds, default=0.0, metavar="S", help="wait between subscribing and publishing (default: 0)")


def _throughput_options(parser: argparse.ArgumentParser) -> None:
    _message_options(parser)
    add = parser.add_argument
    add("--publishers", type=number(1, PUBLISHERS_MAX), default=1, metavar="N", help="(default: 1)")
    add("--subscribers", type=number(1, 10_000), default=1, metavar="N", help="(default: 1)")
    add("--fan", action="store_true", help="every publisher reaches every subscriber (otherwise they are pairs)")
    add("--topics", type=number(1, 1 << 20), default=1, metavar="N", help="of each publisher, in turn (default: 1)")
    add("--wildcard", action="store_true", help="subscribe with a wildcard, as always with several topics")
    add(
        "--filters",
        type=number(0, 1 << 20),
        default=0,
        metavar="N",
        help="additional wildcard filters, for other topics",
    )
    add("--lasting", action="store_true", help="give subscribers durable sessions for this run")
    add("--window", type=number(1, 1 << 19), metavar="N", help="messages that a publisher has in flight "
        "(default: 8192; 100 at QoS 1 and 2)")  # fmt: skip
    add("--batch", type=number(1, 1 << 20), default=1 << 20, metavar="N", help="messages one write may carry "
        "(default: what is there; 1: a write for each)")  # fmt: skip
    add("--processes", type=number(1, 256), default=1, metavar="N", help="run it N times at once (default: 1)")


def _latency_options(parser: argparse.ArgumentParser) -> None:
    _message_options(parser)


def _connects_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--inflight", type=number(1, 10_000), default=64, metavar="N", help="at the same time (default: 64)")
    add("--processes", type=number(1, 256), default=1, metavar="N", help="run it N times at once (default: 1)")


def _subscribes_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--qos", type=number(0, 2), default=1, metavar="N", help="asked for (default: 1)")


def _idle_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--connections", type=number(1, 1_000_000), default=1000, metavar="N", help="(default: 1000)")
    add("--qos", type=number(0, 2), default=1, metavar="N", help="of the subscriptions (default: 1)")
    add(
        "--limit",
        type=seconds,
        default=60.0,
        metavar="S",
        help="stop opening connections after this time (default: 60)",
    )
    add("--hold", type=seconds, default=0.0, metavar="S", help="keep them open for this time (default: 0)")
