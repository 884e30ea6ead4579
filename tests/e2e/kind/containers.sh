# Podman and buildah for the scripts of this folder (sourced): a storage of their own under the cache, and settings that
# work for root without systemd. Nothing here touches the machine's own containers.
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

export CONTAINERS_CONF=$CACHE/containers.conf CONTAINERS_STORAGE_CONF=$CACHE/storage.conf
export BUILDAH_ISOLATION=chroot KIND_EXPERIMENTAL_PROVIDER=podman

cat >"$CONTAINERS_CONF" <<EOF
[containers]
default_ulimits = ["nofile=20000:20000", "nproc=30000:30000"]
[engine]
runtime = "runc"
cgroup_manager = "cgroupfs"
events_logger = "file"
image_copy_tmp_dir = "storage"
[network]
network_config_dir = "$CACHE/networks"
EOF
cat >"$CONTAINERS_STORAGE_CONF" <<EOF
[storage]
driver = "overlay"
graphroot = "$CACHE/containers"
runroot = "/run/flockmq-e2e"
EOF
mkdir -p "$CACHE/networks" /lib/modules

# image_of ROOT NAME CONFIG...: make an image of the folder ROOT; CONFIG are Dockerfile instructions.
image_of() {
  local root=$1 name=$2 changes=() line
  shift 2
  for line; do changes+=(--change "$line"); done
  tar -C "$root" -c . | podman import --quiet "${changes[@]}" - "$name" >/dev/null
}
