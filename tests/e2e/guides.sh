# Read by bash before the blocks of a page: tests/e2e/guides.rs. It stops at the first command that fails.
set -Eeuo pipefail
trap 'echo "failed: $BASH_COMMAND" >&2' ERR
trap 'end_all' EXIT
started= server=
block() { echo "== the block at $1" >&2; }

# The programs that would not end, or that are another machine's.
driftless() {
    case " $* " in
    *" --follow "* | " logs -f "*) timeout 3 "$PROGRAM" "$@" || [ $? = 124 ] ;;
    " run "*) run_agent "$PROGRAM" "$@" ;;
    " init "*) "$PROGRAM" "$@" --output "$READER/etc/driftless.yaml" ;;
    " doctor "*) DRIFTLESS_LISTEN=127.0.0.1:$FREE_PORT "$PROGRAM" "$@" --config "$READER/etc/driftless.yaml" ;;
    " backup "* | " restore "*) "$PROGRAM" "$@" --state-dir "$STATE" ;;
    *) "$PROGRAM" "$@" ;;
    esac
}
curl() {
    case " $* " in
    *" -sN "*) timeout 3 "$(type -P curl)" "$@" || [ $? = 124 ] ;;
    *) command curl --fail --show-error "$@" ;;
    esac
}
# An agent in the background, until the page ends.
run_agent() {
    DRIFTLESS_STATE_DIR=$STATE DRIFTLESS_RUNTIME_DIR=/dev/shm/$APP DRIFTLESS_LISTEN=$ADDRESS DRIFTLESS_SOCKET=$READER/socket \
        "$@" >"$READER/agent.log" 2>&1 &
    AGENT=$!
    started=$AGENT
    local tries=0
    until "$PROGRAM" status "$APP" 2>/dev/null | grep -q 'Docker read'; do
        tries=$((tries + 1))
        if [ "$tries" -gt 300 ] || ! kill -0 "$AGENT"; then
            cat "$READER/agent.log" >&2
            return 1
        fi
        sleep 0.2
    done
}
end_agent() {
    kill "$AGENT" 2>/dev/null || return 0
    # The test has not waited for its child yet.
    while [ -d "/proc/$AGENT" ] && ! grep -q '^State:.Z' "/proc/$AGENT/status"; do sleep 0.1; done
}
end_all() {
    [ -z "$started" ] || AGENT=$started end_agent
    [ -z "$server" ] || kill "$server"
}
systemctl() {
    case $1 in
    enable)
        run_agent "$PROGRAM" run --config "$READER/etc/driftless.yaml"
        driftless wait "$APP" --for healthy --timeout 60s
        ;;
    stop)
        end_agent
        # Another machine, with an empty state directory.
        rm -f "$STATE"/driftless*.db* "$STATE/database.key"
        ;;
    start) run_agent "$PROGRAM" run --config "$CONFIGURATION" ;;
    *) return 1 ;;
    esac
}

# The script of a release that was made from the program of the tests, against a server with its files.
sh() {
    [ "$1" = install.sh ] || { command sh "$@"; return; }
    local version
    version=$(sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"/\1/p' "$ROOT/Cargo.toml")
    HOME=$REAL_HOME DIST_QUICK=1 DIST=$READER/releases/v$version DIST_BINARY=$PROGRAM DIST_URL=http://127.0.0.1:$FREE_PORT "$ROOT/scripts/dist.sh"
    python3 -m http.server --bind 127.0.0.1 --directory "$READER/releases" "$FREE_PORT" >/dev/null 2>&1 &
    server=$!
    local tries=0
    until command curl -s -o /dev/null "http://127.0.0.1:$FREE_PORT/"; do
        tries=$((tries + 1))
        [ "$tries" -lt 100 ] || return 1
        sleep 0.1
    done
    command sh "$READER/releases/v$version/install.sh" --root "$READER/root" "${@:2}"
    PROGRAM=$READER/root/usr/local/bin/driftless
}

# What the pages suppose.
mkdir -p "$READER/etc" "$READER/backup" "$READER/ci" "$READER/other" "$READER/.config/driftless"
[ -e "$READER/etc/git-token" ] || (umask 077 && echo secret >"$READER/etc/git-token")
cat >"$READER/.config/driftless/hosts.yaml" <<HOSTS
hosts:
- {name: nas, server: "$DRIFTLESS_SERVER"}
- {name: web-1, server: "$DRIFTLESS_SERVER"}
HOSTS
if [ -e "$STATE/database.key" ]; then cp "$STATE/database.key" "$READER/other/"; fi
case $PAGE in
README.md)
    git config user.name Reader
    git config user.email reader@example.com
    git config branch.main.remote origin
    git config branch.main.merge refs/heads/main
    ;;
docs/webhooks.md)
    cp "${CONFIGURATION%/*}/hook-secret" .
    ;;
docs/convert.md)
    mkdir -p "deploy/$APP"
    cp "sites/$APP/compose.yaml" .
    cp "sites/$APP/compose.yaml" "deploy/$APP/"
    git add deploy compose.yaml
    ;;
docs/settings-in-git.md)
    mkdir -p "hosts/web-1/$APP"
    cp "sites/$APP"/* "hosts/web-1/$APP/"
    git add hosts
    git -c user.name=Reader -c user.email=reader@example.com commit -qm "Add a host"
    ;;
esac
