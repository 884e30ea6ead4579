"""The machine: its two cores, what it is called, and the certificate that TLS listeners show."""

from __future__ import annotations

import os
import platform
import resource
from pathlib import Path
from typing import Final

from flockbench.errors import BenchError
from flockbench.packages import step

PROC: Final = Path("/proc")


def two_cores() -> tuple[int, int]:
    """The core of the broker and the core of the load: the first two that this process may use."""
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        raise BenchError("two cores are needed, one for the broker and one for the load; this process may use one")
    return cores[0], cores[1]


def open_files_limit(wanted: int) -> None:
    """Raise the limit of open files, which children inherit, to `wanted` at least."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    unlimited = resource.RLIM_INFINITY
    if hard not in (unlimited,) and hard < wanted:
        raise BenchError(f"{wanted:,} open files are needed, {hard:,} are allowed: raise the hard limit (ulimit -Hn)")
    if soft != unlimited and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def certificate(cache: Path) -> tuple[Path, Path]:
    """A self-signed certificate for 127.0.0.1 and its key (EC, P-256), made once."""
    certificate, key = cache / "tls" / "certificate.pem", cache / "tls" / "key.pem"
    if not certificate.exists():
        certificate.parent.mkdir(parents=True, exist_ok=True)
        curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout", str(key)]
        name = ["-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1,DNS:localhost"]
        step(["openssl", "req", "-x509", "-days", "3650", *curve, *name, "-out", str(certificate)])
        key.chmod(0o644)  # a broker that gives up its rights reads it too
    return certificate, key


def description() -> str:
    """For the report: processor, cores, memory, kernel. No host name."""
    lines = (PROC / "cpuinfo").read_text().splitlines()
    model = next((line.partition(":")[2].strip() for line in lines if "model name" in line), platform.machine())
    memory_gib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return f"{model}, {os.cpu_count()} cores, {memory_gib:.0f} GiB, Linux {platform.release().partition('-')[0]}"
