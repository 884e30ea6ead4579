"""rmqtt (Rust): no plugins; the windows, queues and rates of a listener opened wide."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from flockbench.brokers import Installed, Launch, Site
from flockbench.packages import cargo, debian, libraries

VERSION: Final = "0.24.0"

NODE: Final = """\
node.id = 1
rpc.server_addr = "127.0.0.1:{site.others[0]}"
log.to = "console"
log.level = "error"
plugins.dir = "plugins/"
plugins.default_startups = []
"""
LISTENER: Final = """\
listener.{kind}.external.addr = "127.0.0.1:{port}"
listener.{kind}.external.nodelay = true
listener.{kind}.external.max_connections = 1024000
listener.{kind}.external.max_handshaking_limit = 2000
listener.{kind}.external.allow_anonymous = true
listener.{kind}.external.min_keepalive = 0
listener.{kind}.external.allow_zero_keepalive = true
listener.{kind}.external.max_inflight = 16384
listener.{kind}.external.max_mqueue_len = 100000
listener.{kind}.external.mqueue_rate_limit = "4294967295,1s"
listener.{kind}.external.max_awaiting_rel = 10000
"""
TLS: Final = """\
listener.tls.external.cert = "{site.certificate}"
listener.tls.external.key = "{site.key}"
"""


def install(cache: Path) -> Installed:
    protoc = debian(cache, "protoc", ["protobuf-compiler"])  # one of its dependencies is built from .proto files
    environment = {
        "PROTOC": str(protoc / "usr/bin/protoc"),
        "LD_LIBRARY_PATH": ":".join(map(str, libraries(protoc))),
    }
    binary = cargo(cache, "rmqttd", VERSION, locked=True, environment=environment)

    def launch(site: Site) -> Launch:
        listeners = (
            LISTENER.format(kind="tcp", port=site.mqtt),
            LISTENER.format(kind="tls", port=site.tls) + TLS.format(site=site),
            LISTENER.format(kind="ws", port=site.websocket),
        )
        files = {"rmqtt.toml": NODE.format(site=site) + "".join(listeners), "plugins/.keep": ""}
        return Launch((str(binary), "-f", "rmqtt.toml"), files)

    return Installed(VERSION, launch)
