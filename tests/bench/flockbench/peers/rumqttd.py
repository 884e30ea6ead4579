"""rumqttd (Rust): its shipped configuration, with room for the connections and the packets of the bench."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from flockbench.brokers import Installed, Launch, Site
from flockbench.packages import cargo

VERSION: Final = "0.20.0"

ROUTER: Final = """\
id = 0
[router]
id = 0
max_connections = 20000
max_outgoing_packet_count = 200
max_segment_size = 104857600
max_segment_count = 10
[console]
listen = "127.0.0.1:{site.others[0]}"
"""
LISTENER: Final = """\
[{kind}.{name}]
name = "{name}"
listen = "127.0.0.1:{port}"
next_connection_delay_ms = 0
{tls}
[{kind}.{name}.connections]
connection_timeout_ms = 60000
max_payload_size = 268435455
max_inflight_count = 500
dynamic_filters = true
"""
TLS: Final = """\
[v4.tls.tls]
capath = "{site.certificate}"
certpath = "{site.certificate}"
keypath = "{site.key}"
"""


def install(cache: Path) -> Installed:
    # Its lock file names a crate that today's compiler refuses, so its dependencies are the newest that fit.
    binary = cargo(cache, "rumqttd", VERSION, locked=False)

    def launch(site: Site) -> Launch:
        listeners = (
            LISTENER.format(kind="v4", name="tcp", port=site.mqtt, tls=""),
            LISTENER.format(kind="v4", name="tls", port=site.tls, tls=TLS.format(site=site)),
            LISTENER.format(kind="ws", name="websocket", port=site.websocket, tls=""),
        )
        files = {"rumqttd.toml": ROUTER.format(site=site) + "".join(listeners)}
        return Launch((str(binary), "--quiet", "--config", "rumqttd.toml"), files)

    return Installed(VERSION, launch)
