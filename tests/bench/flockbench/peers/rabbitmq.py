"""RabbitMQ (Erlang) with its MQTT plugins: the newest that Debian has, run from where it was unpacked."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from flockbench.brokers import Installed, Launch, Site
from flockbench.packages import debian_unstable

CONFIGURATION: Final = """\
listeners.tcp = none
mqtt.listeners.tcp.1 = 127.0.0.1:{site.mqtt}
mqtt.listeners.ssl.1 = 127.0.0.1:{site.tls}
web_mqtt.tcp.ip = 127.0.0.1
web_mqtt.tcp.port = {site.websocket}
web_mqtt.ws_path = /mqtt
ssl_options.certfile = {site.certificate}
ssl_options.keyfile = {site.key}
ssl_options.verify = verify_none
mqtt.allow_anonymous = true
anonymous_login_user = guest
anonymous_login_pass = guest
mqtt.prefetch = 65535
mqtt.tcp_listen_options.nodelay = true
log.console = true
log.console.level = error
log.file = false
"""


def install(cache: Path) -> Installed:
    folder = debian_unstable(cache, "rabbitmq-unstable", ["rabbitmq-server"], ["usr/lib/erlang/erts-*/bin/*"])
    erlang = folder / "usr/lib/erlang"
    script = erlang / "bin/erl"
    script.write_text(script.read_text().replace("ROOTDIR=/usr/lib/erlang", f"ROOTDIR={erlang}"))
    home = next((folder / "usr/lib/rabbitmq/lib").glob("rabbitmq_server-*"))
    programs = [str(erlang / "bin"), *(str(path) for path in erlang.glob("erts-*/bin"))]

    def launch(site: Site) -> Launch:
        files = {
            "rabbitmq.conf": CONFIGURATION.format(site=site),
            "plugins": "[rabbitmq_mqtt, rabbitmq_web_mqtt].",
            "start": f'export PATH="{":".join(programs)}:$PATH"\n'
            'here="$PWD"\n'
            'export HOME="$here" RABBITMQ_CONFIG_FILE="$here/rabbitmq.conf"\n'
            'export RABBITMQ_ENABLED_PLUGINS_FILE="$here/plugins"\n'
            'export RABBITMQ_MNESIA_BASE="$here/data" RABBITMQ_LOG_BASE="$here/log" RABBITMQ_PID_FILE="$here/pid"\n'
            'epmd -address 127.0.0.1 -port "$ERL_EPMD_PORT" &\n'
            f'exec sh "{folder}/usr/lib/rabbitmq/bin/rabbitmq-server"\n',
        }
        environment = {
            "RABBITMQ_HOME": str(home),
            "RABBITMQ_PLUGINS_DIR": str(home / "plugins"),
            "RABBITMQ_NODENAME": "bench@localhost",
            "RABBITMQ_CONF_ENV_FILE": "/dev/null",
            "RABBITMQ_DIST_PORT": str(site.others[0]),
            "ERL_EPMD_PORT": str(site.others[1]),
        }
        return Launch(("sh", "start"), files, environment)

    return Installed(home.name.rpartition("-")[2], launch)
