#!/bin/sh
# The main job, shown in two minutes: a local Git repository becomes running containers, and stays that way.
# Everything it makes lies in .demo/ or is labelled `demo-…`, and is removed at the end; with KEEP=1 it stays.
set -eu

root=$(cd "$(dirname "$0")/.." && pwd)
cd "$root"
demo=$root/.demo
log=$demo/agent.log
# The debug build is ready in half the time, and `make test` goes on from it. DRIFTLESS=path takes another binary.
driftless=${DRIFTLESS:-${CARGO_TARGET_DIR:-$root/target}/debug/driftless}
repository=$demo/infra.git
work=$demo/work
began=$(date +%s)

if [ -t 1 ] && [ -z "${NO_COLOR:-}" ]; then
    bold=$(printf '\033[1m') green=$(printf '\033[32m') red=$(printf '\033[31m') dim=$(printf '\033[2m')
    plain=$(printf '\033[0m')
else
    bold='' green='' red='' dim='' plain=''
fi
step() { printf '\n%s== %s%s\n' "$bold" "$*" "$plain"; }
good() { printf '%s%s%s\n' "$green" "$*" "$plain"; }
note() { printf '%s%s%s\n' "$dim" "$*" "$plain"; }
fail() {
    printf '%sThe demo failed: %s%s\n' "$red" "$*" "$plain" >&2
    exit 1
}

stop_agent() {
    [ -s "$demo/agent.pid" ] || return 0
    pid=$(cat "$demo/agent.pid")
    # A process id is reused some day: only ours is ended.
    case $(tr '\0' ' ' <"/proc/$pid/cmdline" 2>/dev/null || true) in
    *driftless*"$demo"*)
        kill "$pid" 2>/dev/null || true
        tries=0
        while kill -0 "$pid" 2>/dev/null && [ "$tries" -lt 100 ]; do
            sleep 0.1
            tries=$((tries + 1))
        done
        kill -9 "$pid" 2>/dev/null || true
        ;;
    esac
    rm -f "$demo/agent.pid"
}
remove_all() {
    stop_agent
    if command -v docker >/dev/null 2>&1; then
        scripts/test-clean.sh demo-
    fi
    rm -rf "$demo" "/dev/shm/driftless-demo-$(id -u)"
}
finish() {
    code=$?
    trap - EXIT INT TERM
    if [ "$code" -ne 0 ] && [ -s "$log" ]; then
        echo "The end of the agent's log ($log):" >&2
        tail -n 25 "$log" >&2
        cp "$log" "${TMPDIR:-/tmp}/driftless-demo.log" && echo "kept as ${TMPDIR:-/tmp}/driftless-demo.log" >&2
    fi
    if [ "$code" -eq 0 ] && [ -n "${KEEP:-}" ]; then
        step "Left running, because of KEEP=$KEEP"
        echo "  the page        http://127.0.0.1:$web_port/"
        echo "  the agent       http://$DRIFTLESS_LISTEN/"
        echo "  the repository  $work   (commit and push there, and watch)"
        echo "  to end it       scripts/demo.sh stop"
    else
        remove_all
    fi
    exit "$code"
}

if [ "${1:-}" = stop ]; then
    remove_all
    exit 0
fi

# The first port from $1 that nobody listens on.
free_port() {
    port=$1
    while cat /proc/net/tcp /proc/net/tcp6 2>/dev/null | grep -q ":$(printf '%04X' "$port") "; do
        port=$((port + 1))
    done
    echo "$port"
}
milliseconds() { echo $(($(date +%s%N) / 1000000)); }
# The milliseconds of a time as Docker writes it.
milliseconds_of() { echo $(($(date -d "$1" +%s%N) / 1000000)); }

agent() { "$driftless" "$@"; }
status_of() { agent status "$1" -o json 2>/dev/null | tr -d ' \n'; }

# settled APPLICATION COMMIT: it runs this commit, and every part of it is healthy.
settled() {
    text=$(status_of "$1") || return 1
    case $text in
    *'"health":"Progressing"'* | *'"health":"Missing"'* | *'"health":"Degraded"'*) return 1 ;;
    *'"health":"Unknown"'* | *'"health":"Suspended"'*) return 1 ;;
    esac
    # Both what is asked for and what runs name the commit.
    [ "$(printf %s "$text" | grep -o "\"id\":\"$2\"" | wc -l)" -ge 2 ] || return 1
    case $text in
    *'"sync":"Synced"'*'"health":"Healthy"'* | *'"health":"Healthy"'*'"sync":"Synced"'*) return 0 ;;
    esac
    return 1
}
# await WHAT COMMAND...: asks every 0.1 s, gives up after a minute or when the agent has ended.
await() {
    what=$1
    shift
    tries=0
    until "$@"; do
        kill -0 "$(cat "$demo/agent.pid")" 2>/dev/null || fail "the agent has ended while we waited for: $what"
        [ "$tries" -lt 600 ] || fail "not within a minute: $what"
        sleep 0.1
        tries=$((tries + 1))
    done
}
answers() { agent status >/dev/null 2>&1; }
version_is() {
    [ "$(docker inspect demo-shop-web-1 --format '{{.State.Status}} {{.Config.Image}}' 2>/dev/null)" = \
        "running driftless-demo/shop:$1" ]
}
push() {
    git -C "$work" -c user.name=Demo -c user.email=demo@example.com commit -qam "$1"
    git -C "$work" push -q origin main
    git -C "$work" rev-parse HEAD
}

step "A Docker Engine, a build, and images made from scratch"
scripts/ensure-docker.sh
scripts/test-tools.sh git
[ -n "${DRIFTLESS:-}" ] || cargo build --locked
[ -x "$driftless" ] || fail "there is no $driftless"
remove_all
trap finish EXIT
trap 'exit 130' INT TERM
mkdir -p "$demo"
for image in driftless-demo/shop:1.0 driftless-demo/shop:2.0 registry.example.com/order-api:v2.1.0; do
    examples/image.sh "$image"
done
built=$(date +%s)

step "A Git repository"
git init -q --bare -b main "$repository"
git init -q -b main "$work"
git -C "$work" remote add origin "$repository"
mkdir -p "$work/sites"
cp -R examples/sites/shop "$work/sites/demo-shop"
cp -R examples/sites/order-api "$work/sites/demo-order-api"
web_port=$(free_port 8080)
echo "WEB_PORT=$web_port" >"$work/sites/demo-shop/.env"
git -C "$work" add -A
first=$(push "Open the shop")
git -C "$work" log --oneline | cat
(cd "$work" && find sites -type f | sort | sed 's/^/  /')

# What containers get as secrets belongs on a memory file system.
runtime=$demo/run
if [ -w /dev/shm ]; then
    runtime=/dev/shm/driftless-demo-$(id -u)
fi
DRIFTLESS_LISTEN=127.0.0.1:$(free_port 8484)
DRIFTLESS_SERVER=http://$DRIFTLESS_LISTEN
export DRIFTLESS_SERVER
step "The agent"
note "driftless run $repository --path sites --branch main"
"$driftless" run "$repository" --path sites --branch main --poll 5s \
    --state-dir "$demo/state" --runtime-dir "$runtime" --listen "$DRIFTLESS_LISTEN" \
    >"$log" 2>&1 </dev/null &
echo $! >"$demo/agent.pid"
await "the agent answers" answers
await "demo-shop is Synced and Healthy" settled demo-shop "$first"
await "demo-order-api is Synced and Healthy" settled demo-order-api "$first"
good "All is Synced and Healthy."
agent status
echo "The page: http://127.0.0.1:$web_port/   The agent: $DRIFTLESS_SERVER/"

step "A push is deployed"
sed -i 's|driftless-demo/shop:1.0|driftless-demo/shop:2.0|' "$work/sites/demo-shop/compose.yaml"
from=$(milliseconds)
second=$(push "Version 2.0")
agent sync demo-shop >/dev/null
await "version 2.0 runs" version_is 2.0
started=$(docker inspect demo-shop-web-1 --format '{{.State.StartedAt}}')
await "demo-shop is Synced and Healthy at version 2.0" settled demo-shop "$second"
good "From \`git push\` to the page at 2.0: $(($(milliseconds_of "$started") - from)) ms, with migration and API before it."
agent history demo-shop

step "A container is killed, and replaced"
since=$(date +%s)
before=$(docker inspect demo-shop-web-1 --format '{{.Id}}')
note "docker rm -f demo-shop-web-1"
docker rm -f demo-shop-web-1 >/dev/null
is_replaced() {
    now=$(docker inspect demo-shop-web-1 --format '{{.State.Status}} {{.Id}}' 2>/dev/null) || return 1
    case $now in
    *"$before") return 1 ;;
    running*) return 0 ;;
    esac
    return 1
}
await "the container is replaced" is_replaced
# The engine's own clock and its own words: from the end of the old one to the start of the new one.
docker events --since "$since" --until "$(($(date +%s) + 1))" --filter container=demo-shop-web-1 \
    --filter event=die --filter event=start --format '{{.Action}} {{.TimeNano}}' >"$demo/events"
gap=$(awk '$1 == "die" && !died { died = $2 } $1 == "start" && died { print int(($2 - died) / 1000000); exit }' \
    "$demo/events")
[ -n "$gap" ] || fail "the engine's events do not show the replacement"
await "demo-shop is Healthy again" settled demo-shop "$second"
good "From its end to its replacement's start, by the engine's events: $gap ms."

step "A rollback"
agent rollback demo-shop --to 1 --reason "the demo" 
await "version 1.0 runs" version_is 1.0
await "demo-shop is Synced and Healthy at version 1.0" settled demo-shop "$first"
agent status
agent resume demo-shop
await "version 2.0 runs again" version_is 2.0
await "demo-shop is Synced and Healthy at version 2.0" settled demo-shop "$second"
good "Rolled back to 1.0 and, with \`driftless resume\`, forward to 2.0."
note "$(($(date +%s) - built)) s after the build ($(($(date +%s) - began)) s in all)"
