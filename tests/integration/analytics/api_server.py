"""An API server of Kubernetes with nothing behind it: it admits, stores and authorizes; no pod runs.

Its programs are those that tests/e2e/kind builds from their Go modules.
"""

import json
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from ports import free_port

Object = dict[str, Any]
ADMIN_TOKEN = "admin"


def programs() -> Path | None:
    """The folder that holds them; None: they haven't been built."""
    found = sorted((Path.home() / ".cache/flockmq").glob("tools-node-*/kube-apiserver"))
    return found[-1].parent if found else None


class ApiServer:
    def __init__(self, kubectl: Path, url: str, authority: Path) -> None:
        self._kubectl, self.url, self.authority = kubectl, url, authority

    def kubectl(self, *arguments: str, given: object = None) -> str:
        here = (f"--server={self.url}", f"--certificate-authority={self.authority}", f"--token={ADMIN_TOKEN}")
        command = [str(self._kubectl), *here, *arguments]
        done = subprocess.run(command, check=False, capture_output=True, text=True, input=json.dumps(given))
        assert done.returncode == 0, done.stderr
        return done.stdout

    def apply(self, item: Object) -> None:
        self.kubectl("apply", "--server-side", "--filename", "-", given=item)

    def items(self, kind: str, namespace: str, labels: str = "") -> list[Object]:
        listed = self.kubectl("get", kind, "--namespace", namespace, "--selector", labels, "--output", "json")
        found: list[Object] = json.loads(listed)["items"]
        return found


@contextmanager
def api_server(folder: Path, scratch: Path) -> Iterator[ApiServer]:
    """`folder`: of its programs."""
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    secret = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    (scratch / "accounts.key").write_bytes(secret)
    (scratch / "tokens.csv").write_text(f'{ADMIN_TOKEN},admin,1,"system:masters"\n')
    store, peers, port = (free_port() for _ in range(3))
    etcd = [
        "etcd",
        f"--data-dir={scratch}/etcd",
        f"--listen-client-urls=http://127.0.0.1:{store}",
        f"--advertise-client-urls=http://127.0.0.1:{store}",
        f"--listen-peer-urls=http://127.0.0.1:{peers}",
    ]
    kubernetes = [
        "kube-apiserver",
        f"--etcd-servers=http://127.0.0.1:{store}",
        "--bind-address=127.0.0.1",
        "--advertise-address=127.0.0.1",
        f"--secure-port={port}",
        f"--cert-dir={scratch}/certificates",
        f"--token-auth-file={scratch}/tokens.csv",
        "--authorization-mode=RBAC",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--service-account-key-file={scratch}/accounts.key",
        f"--service-account-signing-key-file={scratch}/accounts.key",
        "--service-cluster-ip-range=10.0.0.0/24",
    ]
    with ExitStack() as running:
        for name, *arguments in (etcd, kubernetes):
            log = running.enter_context((scratch / f"{name}.log").open("w"))
            server = running.enter_context(subprocess.Popen([folder / name, *arguments], stdout=log, stderr=log))
            running.callback(server.terminate)
        made = ApiServer(folder / "kubectl", f"https://127.0.0.1:{port}", scratch / "certificates/apiserver.crt")
        while not _is_ready(made, scratch):
            assert server.poll() is None, (scratch / "kube-apiserver.log").read_text()[-2000:]
            time.sleep(0.5)
        yield made


def _is_ready(server: ApiServer, scratch: Path) -> bool:
    if not (scratch / "certificates/apiserver.crt").exists():
        return False
    try:
        return server.kubectl("get", "--raw", "/readyz").strip() == "ok"
    except AssertionError:
        return False
