"""aedes (JavaScript, Node.js): a library; the server around it is the one of its documentation."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from flockbench.brokers import Installed, Launch, Site
from flockbench.packages import npm

VERSION: Final = "1.2.0"
WS_VERSION: Final = "8.18.3"

SERVER: Final = """\
import { createServer } from 'node:net'
import { createServer as createTlsServer } from 'node:tls'
import { createServer as createHttpServer } from 'node:http'
import { readFileSync } from 'node:fs'
import { Aedes } from 'aedes'
import { WebSocketServer, createWebSocketStream } from 'ws'

const [mqtt, tls, websocket] = process.argv.slice(2, 5).map(Number)
const [cert, key] = process.argv.slice(5, 7).map(path => readFileSync(path))
const aedes = await Aedes.createBroker({ heartbeatInterval: 3600000 })
createServer({ noDelay: true }, aedes.handle).listen(mqtt, '127.0.0.1')
createTlsServer({ cert, key }, aedes.handle).listen(tls, '127.0.0.1')
const http = createHttpServer().listen(websocket, '127.0.0.1')
new WebSocketServer({ server: http }).on('connection', (socket, request) =>
  aedes.handle(createWebSocketStream(socket), request))
"""


def install(cache: Path) -> Installed:
    folder = npm(cache, f"aedes-{VERSION}", [f"aedes@{VERSION}", f"ws@{WS_VERSION}"])
    (folder / "server.mjs").write_text(SERVER)

    def launch(site: Site) -> Launch:
        ports = (str(port) for port in (site.mqtt, site.tls, site.websocket))
        return Launch(("node", str(folder / "server.mjs"), *ports, str(site.certificate), str(site.key)))

    return Installed(VERSION, launch)
