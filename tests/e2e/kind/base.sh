#!/usr/bin/env bash
# Bootstrap the Debian root file systems that images are made from where no image registry can be reached:
#
#   python   trixie with Python 3.13, its headers, pip and venv: the stand-in for python:3.13-slim-trixie
#   node     bookworm (the last whose systemd boots on cgroup v1) with what a kind node runs
#   proxy    bookworm with the packet filter's tools, for kube-proxy
#
# Prints the folder in which each is a tar file. Packages come from the Debian mirror that this machine's apt uses.
. "$(dirname "$0")/common.sh"

PYTHON=ca-certificates,python3,python3-dev,python3-pip,python3-venv
NODE=systemd,systemd-sysv,dbus,containerd,runc,containernetworking-plugins,iptables,nftables,conntrack,ethtool
NODE+=,socat,iproute2,kmod,mount,procps,util-linux,curl,ca-certificates
PROXY=iptables,nftables,conntrack,ipset,kmod

bootstrap() { # FOLDER NAME SUITE PACKAGES
  local root=$1/$2
  debootstrap --variant=minbase --include="$4" "$3" "$root" $(mirror) >"$1/$2.log" 2>&1 || { tail -20 "$1/$2.log"; return 1; }
  rm -rf "$root"/var/cache/apt/* "$root"/var/lib/apt/lists/* "$root"/usr/share/doc/* "$root"/usr/share/man/* \
    "$root"/usr/share/locale/* "$root"/usr/lib/python3*/EXTERNALLY-MANAGED "$root"/usr/lib/*/libpython*.a
  ln -sf python3 "$root/usr/bin/python"
  tar -C "$root" --exclude='./dev/*' -cf "$1/$2.tar" .
  rm -rf --one-file-system "$root"
  say "  $2: $(du -h "$1/$2.tar" | cut -f1)"
}

mirror() { # the first Debian archive in this machine's apt sources; none: debootstrap's own default
  apt-get indextargets --format '$(REPO_URI) $(LABEL)' | sed -n 's/ Debian$//p' | grep . -m1 || true
}

build() {
  local proxy
  proxy=$(apt-config shell p Acquire::http::Proxy | sed "s/^p='\(.*\)'$/\1/")
  [[ -z $proxy ]] || export http_proxy=$proxy
  bootstrap "$1" python trixie "$PYTHON" & local python=$!
  bootstrap "$1" node bookworm "$NODE"
  bootstrap "$1" proxy bookworm "$PROXY"
  wait "$python"
}

once base "$0" -- build
