"""amqtt (Python, asyncio)."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from flockbench.brokers import Installed, Launch, Site
from flockbench.packages import pip

VERSION: Final = "0.12.1"

CONFIGURATION: Final = """\
listeners:
  default: {{type: tcp, bind: "127.0.0.1:{site.mqtt}", max_connections: 20000}}
  secure:
    {{type: tcp, bind: "127.0.0.1:{site.tls}", ssl: true, certfile: "{site.certificate}", keyfile: "{site.key}"}}
  web: {{type: ws, bind: "127.0.0.1:{site.websocket}"}}
plugins:
  amqtt.plugins.authentication.AnonymousAuthPlugin: {{allow_anonymous: true}}
"""


def install(cache: Path) -> Installed:
    binary = pip(cache, f"amqtt-{VERSION}", [f"amqtt=={VERSION}"]) / "bin/amqtt"

    def launch(site: Site) -> Launch:
        return Launch((str(binary), "-c", "amqtt.yaml"), {"amqtt.yaml": CONFIGURATION.format(site=site)})

    return Installed(VERSION, launch)
