#!/bin/sh
# Fetches Docker Compose of both generations for the tests that hold them against the agent: docker-compose 1.29
# from Debian 12 by apt, and Docker Compose 2 from a newer Debian into DIR, without installing it. Without
# version 1 its one test is skipped, or fails if DRIFTLESS_NO_SKIP names compose-1; without version 2 its tests fail.
#
#   scripts/test-compose.sh DIR
set -eu

[ $# = 1 ] || { echo "usage: $0 DIR" >&2; exit 2; }
say() { echo "test-compose: $*" >&2; }
mkdir -p "$1"
dir=$(cd "$1" && pwd)

# is GENERATION PROGRAM: whether it runs and is of this generation.
is() { "$2" version --short 2>/dev/null | grep -q "^v\{0,1\}$1\."; }

if ! is 1 /usr/bin/docker-compose && command -v apt-get >/dev/null 2>&1 && [ "$(id -u)" = 0 ]; then
    # Debian 13 calls the second generation by the same name; both are usable.
    DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends docker-compose >/dev/null 2>&1 ||
        say "docker-compose 1.29 cannot be had here"
fi

for program in "$dir/docker-compose" /usr/libexec/docker/cli-plugins/docker-compose \
    /usr/local/lib/docker/cli-plugins/docker-compose /usr/bin/docker-compose; do
    if is 2 "$program"; then exit 0; fi
done

state=$(mktemp -d)
trap 'rm -rf "$state"' EXIT
if "$(dirname "$0")/debian.sh" trixie "$state/root" docker-compose; then
    mv "$state/root/usr/libexec/docker/cli-plugins/docker-compose" "$dir/docker-compose"
    say "fetched Docker Compose $("$dir/docker-compose" version --short)"
else
    say "Docker Compose 2 cannot be had here: install its plugin by hand"
fi
