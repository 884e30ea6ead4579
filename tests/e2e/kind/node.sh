#!/usr/bin/env bash
# Build the node image to kind's contract, out of base.sh's Debian and tools.sh's binaries; print its name, when it stands in
# podman's storage.
#
# The images that kubeadm asks for are made here too, each of its one binary, and are unpacked into the node's containerd
# while the node is built: imported at boot they would cost every cluster 40 s.
. "$(dirname "$0")/containers.sh"

TOOLS=$("$HERE/tools.sh" node)
BASE=$("$HERE/base.sh")
VERSION=$("$TOOLS/kubelet" --version | cut -d" " -f2)
OWN_IMAGES=(localhost/local-path-provisioner:node localhost/busybox:node registry.k8s.io/metrics-server/metrics-server:v0.9.0)

images() { # FOLDER: fill it with one archive for each image of the control plane and the add-ons
  local out=$1 name binary
  for name in $("$TOOLS/kubeadm" config images list --kubernetes-version "$VERSION") "${OWN_IMAGES[@]}"; do
    binary=${name##*/} binary=${binary%%:*}
    local root=$out/root
    mkdir -p "$root/usr/local/bin" "$root/tmp" "$root/etc"
    chmod 1777 "$root/tmp"
    case $binary in
      busybox)
        mkdir "$root/bin"
        cp /bin/busybox "$root/bin/"
        "$root/bin/busybox" --list | grep -vx busybox | xargs -I{} ln -s busybox "$root/bin/{}"
        binary=sh ;;
      kube-proxy) tar -C "$root" -xf "$BASE/proxy.tar" && cp "$TOOLS/$binary" "$root/usr/local/bin/" ;;
      *) cp "$TOOLS/$binary" "$root/usr/local/bin/" ;;
    esac
    image_of "$root" "$name" "ENTRYPOINT [\"$binary\"]" 'ENV PATH=/usr/local/bin:/usr/bin:/usr/sbin:/bin:/sbin'
    podman save --quiet --format docker-archive -o "$out/$binary.tar" "$name"
    podman rmi --force "$name" >/dev/null
    rm -rf --one-file-system "$root"
  done
}

unpack() { # ROOT IMAGES: import the archives into the containerd of the node's root, run for that alone
  # Of its own mount namespace, so that nothing stays mounted whatever happens.
  unshare --mount --fork --pid --kill-child bash -euo pipefail -s -- "$1" "$2" <<'EOF'
root=$1
mount --bind "$root" "$root"
mount -t proc proc "$root/proc"
mount --rbind /dev "$root/dev"
mkdir "$root/images"
mount --bind "$2" "$root/images"
export PATH=/usr/local/bin:/usr/bin:/usr/sbin:/bin:/sbin
chroot "$root" containerd --config /dev/null --address /tmp/containerd.sock --state /tmp/containerd >/dev/null 2>"$2/containerd.log" &
for _ in $(seq 100); do
  ! chroot "$root" ctr --address /tmp/containerd.sock version >/dev/null 2>&1 || break
  sleep 0.1
done
for archive in "$2"/*.tar; do
  chroot "$root" ctr --address /tmp/containerd.sock --namespace k8s.io images import "/images/${archive##*/}"
done
kill %1
wait %1 || true
EOF
  rm -rf --one-file-system "$1"/images "$1"/tmp/*
}

build() {
  local root=$1/root
  mkdir "$root" "$1/images"
  images "$1/images"
  tar -C "$root" -xf "$BASE/node.tar"
  cp -a "$HERE/node/." "$root/"
  echo "$VERSION" >"$root/kind/version"
  cp "$TOOLS"/{kubeadm,kubelet,kubectl} "$root/usr/bin/"
  mkdir -p "$root/opt/cni"
  ln -s /usr/lib/cni "$root/opt/cni/bin"
  ln -sf /lib/systemd/system/multi-user.target "$root/etc/systemd/system/default.target"
  local wants=$root/etc/systemd/system/multi-user.target.wants
  mkdir -p "$wants"
  ln -sf /lib/systemd/system/containerd.service /etc/systemd/system/kubelet.service "$wants/"
  : >"$root/etc/machine-id"
  unpack "$root" "$1/images"
  tar -C "$root" -cf "$1/node.tar" .
  rm -rf --one-file-system "$root" "$1/images"
}

inputs=("$0" "$HERE/tools.sh" "$HERE"/tools/* "$HERE/base.sh")
mapfile -t -O "${#inputs[@]}" inputs < <(find "$HERE/node" -type f | sort)
folder=$(once node "${inputs[@]}" -- build)
name=localhost/flockmq-node:${folder##*-}
if ! podman image exists "$name"; then
  podman images --quiet localhost/flockmq-node | xargs -r podman rmi --force >/dev/null
  podman import --quiet --change 'ENTRYPOINT ["/usr/local/bin/entrypoint"]' --change 'ENV container=podman' \
    "$folder/node.tar" "$name" >/dev/null
fi
echo "$name"
