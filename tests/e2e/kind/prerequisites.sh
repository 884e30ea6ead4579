#!/usr/bin/env bash
# Install what the other scripts of this folder call, where the machine has no Docker engine: Debian's packages, as root.
set -euo pipefail

PACKAGES=(podman buildah runc netavark aardvark-dns debootstrap debian-archive-keyring iptables iproute2 busybox-static)

missing=()
for package in "${PACKAGES[@]}"; do
  [[ $(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null) == installed ]] || missing+=("$package")
done
((${#missing[@]} == 0)) && exit
[[ $(id -u) == 0 ]] || { echo "e2e: not root, and these packages are missing: ${missing[*]}" >&2; exit 1; }
apt-get update -qq >&2
DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends "${missing[@]}" >&2
