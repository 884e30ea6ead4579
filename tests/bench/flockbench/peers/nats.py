"""NATS (Go): its MQTT needs JetStream, here without its limit of consumers."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from flockbench.brokers import Installed, Launch, Site
from flockbench.packages import go, version

MODULE: Final = "github.com/nats-io/nats-server/v2"
VERSION: Final = "v2.15.2"

CONFIGURATION: Final = """\
server_name: "{name}"
listen: "127.0.0.1:{listen}"
jetstream {{ store_dir: "{name}", limits: {{ default_max_consumers: -1 }} }}
mqtt {{ listen: "127.0.0.1:{mqtt}" }}
"""
WEBSOCKET: Final = """\
websocket {{ listen: "127.0.0.1:{site.websocket}", no_tls: true }}
"""
OVER_TLS: Final = """\
server_name: "one"
listen: "127.0.0.1:{site.others[0]}"
jetstream {{ store_dir: "one", limits: {{ default_max_consumers: -1 }} }}
mqtt {{ listen: "127.0.0.1:{site.tls}", tls {{ cert_file: "{site.certificate}", key_file: "{site.key}" }} }}
"""
TOGETHER: Final = """\
cluster {{ name: "bench", listen: "127.0.0.1:{own}", routes: ["nats://127.0.0.1:{other}"] }}
"""
TWO: Final = 'for node in one two; do "$0" -c "$node.conf" & done; wait'


def install(cache: Path) -> Installed:
    binary = str(go(cache, MODULE, VERSION, "nats-server"))

    def launch(site: Site) -> Launch:
        text = CONFIGURATION.format(name="one", listen=site.others[0], mqtt=site.mqtt) + WEBSOCKET.format(site=site)
        return Launch((binary, "-c", "nats.conf"), {"nats.conf": text})

    def over_tls(site: Site) -> Launch:
        return Launch((binary, "-c", "nats.conf"), {"nats.conf": OVER_TLS.format(site=site)})

    def cluster(site: Site) -> Launch:
        one, two, link_one, link_two = site.others[:4]
        first = CONFIGURATION.format(name="one", listen=one, mqtt=site.mqtt)
        second = CONFIGURATION.format(name="two", listen=two, mqtt=site.mqtt + 1)
        files = {
            "one.conf": first + TOGETHER.format(own=link_one, other=link_two),
            "two.conf": second + TOGETHER.format(own=link_two, other=link_one),
        }
        return Launch(("sh", "-c", TWO, binary), files)

    # It has one listener for MQTT, which is either plain or TLS.
    return Installed(version([binary, "--version"]), launch, apart={"mqtts": over_tls, "cluster": cluster})
