#!/bin/sh
# Runs end-to-end tests on a newer Docker Engine than this machine's: that of Debian sid, unpacked into DIR and never
# installed. It has data, a network and a socket of its own, and for the tests alone that socket lies in the place of
# /var/run/docker.sock. Needs root. Tests that hand the socket to a container (`contained`) still reach the machine's.
#
#   scripts/e2e-newer.sh DIR [FILTER...]       such as: scripts/e2e-newer.sh target/newer deploy:: drift::
#
# With CONTAINERD_STORE=1 the engine keeps its images in containerd, as Docker 29 does by default: the id of an image is its digest.
set -eu

[ $# -ge 1 ] || { echo "usage: $0 DIR [FILTER...]" >&2; exit 2; }
fail() { echo "e2e-newer: $*" >&2; exit 1; }
[ "$(id -u)" = 0 ] || fail "needs root"
mkdir -p "$1"
dir=$(cd "$1" && pwd)
shift

if [ ! -d "$dir/root" ]; then
    "$(dirname "$0")/debian.sh" sid "$dir/root" docker.io containerd || fail "docker.io of sid cannot be fetched"
fi

# Sockets have short names.
run=$(mktemp -d /tmp/driftless-newer.XXXXXX)
net=driftless-newer-$$
engine=
end() {
    if [ -n "$engine" ]; then
        kill "$engine" && wait "$engine" || true
    fi
    ip netns del "$net" || true
    awk -v below="$run/" 'index($2, below) == 1 { print $2 }' /proc/mounts | sort -r | while read -r at; do
        umount -l "$at"
    done
    rm -rf "$run"
}
trap end EXIT
ip netns add "$net"
ip -n "$net" link set lo up
case ${CONTAINERD_STORE:-} in
1) echo '{"features": {"containerd-snapshotter": true}}' >"$run/daemon.json" ;;
*) echo '{}' >"$run/daemon.json" ;;
esac
# Its own dockerd and containerd, and the machine's runc. Not `ip netns exec`: it mounts another /sys.
PATH="$dir/root/usr/sbin:$dir/root/usr/bin:$PATH" nsenter --net="/run/netns/$net" dockerd \
    --config-file "$run/daemon.json" -H "unix://$run/docker.sock" --data-root "$run/data" --exec-root "$run/exec" \
    --pidfile "$run/pid" --cgroup-parent "/$net" --bip 172.31.97.1/24 --insecure-registry 127.0.0.0/8 \
    >"$run/log" 2>&1 &
engine=$!
tries=0
until docker -H "unix://$run/docker.sock" version >/dev/null 2>&1; do
    tries=$((tries + 1))
    kill -0 "$engine" 2>/dev/null && [ "$tries" -lt 60 ] || { tail -n 20 "$run/log" >&2; fail "it does not start"; }
    sleep 0.5
done
docker -H "unix://$run/docker.sock" version --format 'e2e-newer: Docker Engine {{.Server.Version}}, API {{.Server.APIVersion}}'
docker -H "unix://$run/docker.sock" info --format 'e2e-newer: storage driver {{.Driver}} {{.DriverStatus}}'

cargo test --locked --test e2e --no-run
nsenter --net="/run/netns/$net" unshare -m sh -c '
    mount --make-rprivate /
    mount --bind "$1" "$(readlink -f /var/run/docker.sock)"
    shift
    exec cargo test --locked --offline --test e2e -- --test-threads=2 --skip contained:: "$@"
' e2e "$run/docker.sock" "$@"
