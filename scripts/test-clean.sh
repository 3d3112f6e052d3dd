#!/bin/sh
# Removes what end-to-end tests left behind: containers, networks and volumes whose application begins with
# the given prefix (default `e2e-`), images of registries on this machine with names that begin so, and the images of the
# agent under test, which each run builds again. Nothing else on the machine is touched.
set -eu
prefix=${1:-e2e-}

# ours KIND: the ids (names, for volumes) whose label `driftless.application` has the prefix.
ours() {
    case $1 in
    container) docker ps -a --no-trunc --format '{{.ID}} {{.Label "driftless.application"}}' ;;
    network) docker network ls --no-trunc --format '{{.ID}} {{.Label "driftless.application"}}' ;;
    volume) docker volume ls --format '{{.Name}} {{.Label "driftless.application"}}' ;;
    esac | awk -v prefix="$prefix" 'index($2, prefix) == 1 { print $1 }'
}

for id in $(ours container); do docker rm -f -v "$id" >/dev/null || true; done
for id in $(ours network); do docker network rm "$id" >/dev/null || true; done
for name in $(ours volume); do docker volume rm "$name" >/dev/null || true; done

# Local registries end with their test, so nothing could pull these again.
docker images --format '{{.Repository}}:{{.Tag}}' | awk -v prefix="$prefix" '
    index($0, "127.0.0.1:") == 1 && index(substr($0, index($0, "/") + 1), prefix) == 1
    prefix == "e2e-" && index($0, "driftless-e2e/agent:") == 1
' | while read -r image; do docker image rm "$image" >/dev/null 2>&1 || true; done
