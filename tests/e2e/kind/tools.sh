#!/usr/bin/env bash
# tools.sh clients|node: build programs from their Go modules and print the folder that holds them.
#
#   clients   kind, helm, kubectl
#   node      what a node of the cluster runs: Kubernetes, etcd, CoreDNS, the add-ons
#
# Kubernetes and etcd come from tools/go.mod, which pins every module by its hash; the others are main modules of their
# own, at the versions below. All binaries are static. kubeadm refuses to work without a version, so it is linked in.
. "$(dirname "$0")/common.sh"

KUBERNETES=1.34.4
CLIENTS=(sigs.k8s.io/kind@v0.33.0 helm.sh/helm/v3/cmd/helm@v3.22.0)
ADD_ONS=(
  github.com/coredns/coredns@v1.12.1
  github.com/rancher/local-path-provisioner@v0.0.30
  sigs.k8s.io/metrics-server/cmd/metrics-server@v0.9.0
)

kubernetes() { # PACKAGE...
  local version=k8s.io/component-base/version
  (cd "$HERE/tools" && go install -trimpath -ldflags \
    "-s -w -X $version.gitVersion=v$KUBERNETES -X $version.gitMajor=1 -X $version.gitMinor=34" "$@")
}

modules() { # MODULE@VERSION...
  local module
  for module; do
    say "  $module"
    go install -trimpath -ldflags "-s -w" "$module"
  done
}

build_clients() {
  export GOBIN=$1 CGO_ENABLED=0
  kubernetes k8s.io/kubernetes/cmd/kubectl
  modules "${CLIENTS[@]}"
}

build_node() {
  export GOBIN=$1 CGO_ENABLED=0
  kubernetes tool
  mv "$GOBIN/server" "$GOBIN/etcd"
  modules "${ADD_ONS[@]}"
  go build -trimpath -ldflags "-s -w" -o "$GOBIN/pause" "$HERE/tools/pause.go"
}

once "tools-$1" "$0" "$HERE"/tools/* -- "build_$1"
