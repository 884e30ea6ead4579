"""mochi-mqtt (Go): a library; the server around it is the project's own benchmark's, with its larger write queue."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from flockbench.brokers import Installed, Launch, Site
from flockbench.packages import step

MODULE: Final = "github.com/mochi-mqtt/server/v2"
VERSION: Final = "v2.7.9"

SERVER: Final = """\
package main

import (
	"crypto/tls"
	"io"
	"log"
	"log/slog"
	"os"

	mqtt "github.com/mochi-mqtt/server/v2"
	"github.com/mochi-mqtt/server/v2/hooks/auth"
	"github.com/mochi-mqtt/server/v2/listeners"
)

func main() {
	certificate, err := tls.LoadX509KeyPair(os.Args[4], os.Args[5])
	if err != nil {
		log.Fatal(err)
	}
	server := mqtt.New(&mqtt.Options{Logger: slog.New(slog.NewTextHandler(io.Discard, nil))})
	server.Options.Capabilities.MaximumClientWritesPending = 16 * 1024
	_ = server.AddHook(new(auth.AllowHook), nil)
	secure := &tls.Config{Certificates: []tls.Certificate{certificate}}
	for _, listener := range []listeners.Listener{
		listeners.NewTCP(listeners.Config{ID: "tcp", Address: os.Args[1]}),
		listeners.NewTCP(listeners.Config{ID: "tls", Address: os.Args[2], TLSConfig: secure}),
		listeners.NewWebsocket(listeners.Config{ID: "websocket", Address: os.Args[3]}),
	} {
		if err := server.AddListener(listener); err != nil {
			log.Fatal(err)
		}
	}
	if err := server.Serve(); err != nil {
		log.Fatal(err)
	}
	select {}
}
"""


def install(cache: Path) -> Installed:
    folder = cache / f"mochi-{VERSION}"
    binary = folder / "mochi"
    if not binary.exists():
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "main.go").write_text(SERVER)
        (folder / "go.mod").write_text("module bench\n")
        step(["go", "get", f"{MODULE}@{VERSION}"], cwd=folder)
        step(["go", "mod", "tidy"], cwd=folder)
        step(["go", "build", "-o", str(binary), "."], cwd=folder)

    def launch(site: Site) -> Launch:
        addresses = [f"127.0.0.1:{port}" for port in (site.mqtt, site.tls, site.websocket)]
        return Launch((str(binary), *addresses, str(site.certificate), str(site.key)))

    return Installed(VERSION.removeprefix("v"), launch)
