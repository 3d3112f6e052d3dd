#!/bin/sh
# Removes what end-to-end tests left behind: containers, networks and volumes whose application begins with
# the given prefix (default `e2e-`). Nothing else on the machine is touched.
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
