#!/usr/bin/env python3
"""Build this checkout's images, load them into the test cluster, print their names as shell assignments.

`E2E_BROKER_IMAGE`, `E2E_OPERATOR_IMAGE`, `E2E_ANALYTICS_IMAGE`. The environment is what `kind/up` printed: with the
engine `docker` this is plain `docker build` and `kind load`. With `podman` the bases are stand-ins bootstrapped from
Debian, buildah builds, and the node also gets Debian's Valkey under the name of the image that the chart names for
Redis. With none the images are somebody else's: the names must already be set, and nothing is done.

An image's tag is a hash of all that it is made from, so an image that the cache or the cluster holds is left alone.
How this machine reaches pip's and apt's registries goes into a build as volumes: no image and no Dockerfile holds it.
"""

import configparser
import dataclasses
import hashlib
import os
import pathlib
import shlex
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[2]
CACHE = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "flockmq"
CLUSTER = "flockmq-e2e"


@dataclasses.dataclass(frozen=True)
class Image:
    name: str
    dockerfile: str
    base_argument: str
    sources: tuple[str, ...]
    stands_for: str = ""
    """The name of an image of somebody else's that this one takes the place of in the cluster."""


OURS = (
    Image("operator", "Dockerfile.operator", "PYTHON_IMAGE", ("operator",)),
    Image("broker", "Dockerfile.broker", "PYTHON_IMAGE", ("broker",)),
    Image("analytics", "Dockerfile.analytics", "PYTHON_IMAGE", ("analytics",)),
)
REDIS = Image(
    "redis", "tests/e2e/images/Dockerfile.valkey", "BASE_IMAGE", (), stands_for="docker.io/valkey/valkey:8.1-alpine"
)


def main() -> None:
    engine = os.environ["E2E_ENGINE"]
    if not engine:
        check_given_names()
        return
    base = base_image() if engine == "podman" else ""
    for image in OURS + ((REDIS,) if engine == "podman" else ()):
        name = f"localhost/flockmq-{image.name}:{tag_of(image, base)}"
        archive = CACHE / "images" / f"{image.name}-{name.rpartition(':')[2]}.tar"
        if not archive.exists():
            print(f"building {name}", file=sys.stderr)
            build(engine, image, name, base, archive)
        if not is_loaded(name):
            print(f"loading {name}", file=sys.stderr)
            run(*within(), "kind", "load", "image-archive", "--name", CLUSTER, str(archive))
        if image.stands_for:
            containerd("images", "tag", "--force", name, image.stands_for)
        else:
            print(f"export E2E_{image.name.upper()}_IMAGE={shlex.quote(name)}")


def check_given_names() -> None:
    missing = [name for image in OURS if not os.environ.get(name := f"E2E_{image.name.upper()}_IMAGE")]
    if missing:
        sys.exit(f"e2e: KUBECONFIG names a cluster of yours: set {', '.join(missing)} to images that it can pull")


def tag_of(image: Image, base: str) -> str:
    """Twelve digits over the base and each file, name and contents, that git knows or would add."""
    listing = run("git", "-C", str(ROOT), "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--",
                  image.dockerfile, ".dockerignore", *image.sources)  # fmt: skip
    digest = hashlib.sha256(base.encode())
    for path in sorted(set(filter(None, listing.split("\0")))):
        if (file := ROOT / path).is_file():
            digest.update(f"\0{path}\0{file.stat().st_mode:o}\0".encode() + file.read_bytes())
    return digest.hexdigest()[:12]


def build(engine: str, image: Image, name: str, base: str, archive: pathlib.Path) -> None:
    archive.parent.mkdir(parents=True, exist_ok=True)
    for old in archive.parent.glob(f"{image.name}-*.tar*"):
        old.unlink()
    part = archive.with_suffix(".tar.part")
    arguments = ["--file", str(ROOT / image.dockerfile), "--tag", name]
    if engine == "docker":
        run("docker", "build", "--quiet", *arguments, str(ROOT))
        run("docker", "save", "--output", str(part), name)
    else:
        run("buildah", "build", "--layers", *machine_settings(), "--build-arg", f"{image.base_argument}={base}",
            *arguments, str(ROOT))  # fmt: skip
        run("buildah", "push", "--quiet", name, f"docker-archive:{part}:{name}")
    part.rename(archive)


def is_loaded(name: str) -> bool:
    return name in containerd("images", "list", "--quiet").split()


def containerd(*arguments: str) -> str:
    node = f"{CLUSTER}-control-plane"
    return run(*within(), os.environ["E2E_ENGINE"], "exec", node, "ctr", "--namespace", "k8s.io", *arguments)


def base_image() -> str:
    return run(str(HERE.parent / "kind" / "python-image.sh")).strip()


def machine_settings() -> list[str]:
    """buildah arguments that let pip, apt and Maven in a build reach what they reach on this machine."""
    host = CACHE / "host"
    host.mkdir(parents=True, exist_ok=True)
    bundle = pathlib.Path(os.environ.get("SSL_CERT_FILE") or "/etc/ssl/certs/ca-certificates.crt")
    (host / "ca.crt").write_bytes(bundle.read_bytes())
    with (host / "pip.conf").open("w") as file:
        pip_settings().write(file)
    settings = run("apt-config", "dump").splitlines()
    proxies = [line for line in settings if line.startswith("Acquire::http") and "::Proxy" in line]
    (host / "apt.conf").write_text("\n".join([*proxies, 'Acquire::https::CaInfo "/run/host/ca.crt";', ""]))
    authorities = pathlib.Path("/etc/ssl/certs/java/cacerts")
    if authorities.exists():
        (host / "cacerts").write_bytes(authorities.read_bytes())
    trusted = "-Djavax.net.ssl.trustStore=/run/host/cacerts" if authorities.exists() else ""
    return [
        *("--build-arg", f"MAVEN_OPTS={trusted}"),
        *("--volume", f"{host}:/run/host:ro"),
        *("--volume", f"{host / 'pip.conf'}:/etc/pip.conf:ro"),
        *("--volume", f"{host / 'apt.conf'}:/etc/apt/apt.conf.d/99host:ro"),
    ]


def pip_settings() -> configparser.RawConfigParser:
    """pip's settings of this machine, files below the environment, without those that name its folders."""
    files = configparser.RawConfigParser()
    files.read(["/etc/pip.conf", pathlib.Path.home() / ".config/pip/pip.conf", os.environ.get("PIP_CONFIG_FILE", "")])
    settings = dict(files["global"]) if files.has_section("global") else {}
    given = {name.removeprefix("PIP_"): value for name, value in os.environ.items() if name.startswith("PIP_")}
    settings |= {name.lower().replace("_", "-"): value for name, value in given.items()}
    for folder in ("config-file", "find-links", "cache-dir", "target", "prefix", "require-virtualenv"):
        settings.pop(folder, None)
    settings["cert"] = "/run/host/ca.crt"
    out = configparser.RawConfigParser()
    out["global"] = settings
    return out


def within() -> list[str]:
    """What a command that talks to the cluster is prefixed with."""
    namespace = os.environ.get("E2E_NETNS")
    return ["nsenter", f"--net=/run/netns/{namespace}"] if namespace else []


def run(*command: str) -> str:
    """Standard output of a command; its standard error goes to ours, and a failure ends this program."""
    done = subprocess.run(command, check=False, stdout=subprocess.PIPE, text=True)
    if done.returncode:
        sys.exit(f"{done.stdout[-4000:]}\ne2e: `{shlex.join(command)}` failed with code {done.returncode}")
    return done.stdout


if __name__ == "__main__":
    main()
