"""HiveMQ Community Edition (Java): embedded in a few lines, as its project shows, with persistence in memory."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from flockbench.brokers import Installed, Launch, Site
from flockbench.packages import maven, step

ARTIFACT: Final = "com.hivemq:hivemq-community-edition-embedded"
VERSION: Final = "2025.5"

MAIN: Final = """\
import com.hivemq.embedded.EmbeddedHiveMQ;
import java.nio.file.Path;

public class Main {
    public static void main(String[] arguments) {
        var broker = EmbeddedHiveMQ.builder()
            .withConfigurationFolder(Path.of("conf"))
            .withDataFolder(Path.of("data"))
            .withExtensionsFolder(Path.of("extensions"))
            .build();
        broker.start().join();
        try {
            Thread.currentThread().join();
        } catch (InterruptedException end) {
            broker.stop().join();
        }
    }
}
"""
CONFIGURATION: Final = """\
<?xml version="1.0"?>
<hivemq>
  <listeners>
    <tcp-listener><port>{site.mqtt}</port><bind-address>127.0.0.1</bind-address></tcp-listener>
    <websocket-listener>
      <port>{site.websocket}</port><bind-address>127.0.0.1</bind-address><path>/mqtt</path>
      <subprotocols><subprotocol>mqtt</subprotocol></subprotocols>
    </websocket-listener>
    <tls-tcp-listener>
      <port>{site.tls}</port><bind-address>127.0.0.1</bind-address>
      <tls><keystore>
        <path>{site.certificate.parent}/keystore.p12</path>
        <password>{password}</password><private-key-password>{password}</private-key-password>
      </keystore></tls>
    </tls-tcp-listener>
  </listeners>
  <mqtt>
    <queued-messages><max-queue-size>100000</max-queue-size></queued-messages>
    <receive-maximum><server-receive-maximum>65535</server-receive-maximum></receive-maximum>
  </mqtt>
  <persistence><mode>in-memory</mode></persistence>
  <anonymous-usage-statistics><enabled>false</enabled></anonymous-usage-statistics>
</hivemq>
"""
KEYSTORE_PASSWORD: Final = "changeit"
LOGGING: Final = '<configuration><root level="ERROR"/></configuration>'


def install(cache: Path) -> Installed:
    folder = maven(cache, f"hivemq-{VERSION}", f"{ARTIFACT}:{VERSION}")
    if not (folder / "Main.class").exists():
        (folder / "Main.java").write_text(MAIN)
        step(["javac", "-cp", f"{folder}/*", "-d", str(folder), str(folder / "Main.java")])

    def launch(site: Site) -> Launch:
        keystore = site.certificate.parent / "keystore.p12"
        if not keystore.exists():
            inputs = ["-in", str(site.certificate), "-inkey", str(site.key)]
            step(
                [
                    "openssl",
                    "pkcs12",
                    "-export",
                    *inputs,
                    "-out",
                    str(keystore),
                    "-passout",
                    f"pass:{KEYSTORE_PASSWORD}",
                ]
            )
        files = {
            "conf/config.xml": CONFIGURATION.format(site=site, password=KEYSTORE_PASSWORD),
            "conf/logback.xml": LOGGING,
            "data/.keep": "",
            "extensions/.keep": "",
        }
        memory = ("-Xms512m", "-Xmx4g", "-XX:+UseSerialGC")  # one core: the collector without threads of its own
        return Launch(("java", *memory, "-cp", f"{folder}/*:{folder}", "Main"), files)

    return Installed(VERSION, launch)
