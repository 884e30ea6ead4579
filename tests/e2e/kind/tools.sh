#!/usr/bin/env bash
# Build Kubernetes, etcd, CoreDNS, kind, helm and the two add-ons from their Go modules; print the folder that holds them.
#
# Kubernetes and etcd come from tools/go.mod, which pins every module by its hash; the others are main modules of their
# own, at the versions below. All binaries are static. kubeadm refuses to work without a version, so it is linked in.
. "$(dirname "$0")/common.sh"

MODULES=(
  sigs.k8s.io/kind@v0.33.0
  helm.sh/helm/v3/cmd/helm@v3.22.0
  github.com/coredns/coredns@v1.12.1
  github.com/rancher/local-path-provisioner@v0.0.30
  sigs.k8s.io/metrics-server/cmd/metrics-server@v0.9.0
)

build() {
  local version=k8s.io/component-base/version module
  export GOBIN=$1 CGO_ENABLED=0
  cd "$HERE/tools"
  go install -trimpath tool \
    -ldflags "-s -w -X $version.gitVersion=v$KUBERNETES -X $version.gitMajor=1 -X $version.gitMinor=34"
  mv "$GOBIN/server" "$GOBIN/etcd"
  for module in "${MODULES[@]}"; do
    say "  $module"
    go install -trimpath -ldflags "-s -w" "$module"
  done
  go build -trimpath -ldflags "-s -w" -o "$GOBIN/pause" "$HERE/tools/pause.go"
}

once tools "$0" "$HERE/common.sh" "$HERE"/tools/* -- build
