#!/bin/sh
# Fetches podman 5.4 of Debian 13 and all that it needs into DIR/podman, a root of its own, for the test that holds
# `podman kube play` against the agent. Without it that test is skipped, or fails if DRIFTLESS_NO_SKIP names podman.
#
#   scripts/test-podman.sh DIR
set -eu

[ $# = 1 ] || { echo "usage: $0 DIR" >&2; exit 2; }
say() { echo "test-podman: $*" >&2; }
root=$1/podman
[ ! -d "$root" ] || exit 0
if [ "$(id -u)" != 0 ]; then
    say "podman is not fetched: the test that needs it needs root"
    exit 0
fi
if ! "$(dirname "$0")/debian.sh" --with-dependencies trixie "$root.new" podman crun netavark nftables catatonit; then
    say "podman cannot be had here"
    exit 0
fi
# What the package `base-files` would make, and what is mounted over.
for it in bin sbin lib lib64; do ln -s "usr/$it" "$root.new/$it"; done
for it in proc sys dev run tmp root var/tmp var/lib/containers; do mkdir -p "$root.new/$it"; done
mv "$root.new" "$root"
say "fetched podman into $root"
