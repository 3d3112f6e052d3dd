#!/bin/sh
# The end-to-end tests on the real engine, $E2E_THREADS side by side.
#
# One that hangs ends the run after $E2E_STALL seconds in which no test ended, instead of holding it up for ever.
# No test gets a second try.
#
# At the same time, as root, the faults of an engine, each on an engine of its own. They wait most of the time.
set -eu

# Of the whole workspace, so that its crates have the features that the other tests have compiled them with.
e2e() { cargo test --locked --workspace --test e2e "$@"; }

threads=${E2E_THREADS:-4}
stall=${E2E_STALL:-300}
here=$(dirname "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

clean() {
    "$here/test-clean.sh" e2e-
    "$here/test-clean.sh" dl-docker-
}

# start NAME WORD...: the tests of these words in the background, in a process group of their own, so that all of it can
# be ended. They write to $work/NAME, and their status to $work/NAME.status.
start() {
    said=$work/$1
    shift
    : >"$said"
    setsid sh -c '
        said=$1 status=0
        shift
        cargo test --locked --workspace --test e2e -- "$@" || status=$?
        echo "$status" >"$said.status"
    ' e2e "$said" "$@" >"$said" 2>&1 &
}

# await NAME GROUP: succeeds if all its tests did. Prints what it says meanwhile.
await() {
    tail -n +1 -f --pid="$2" "$work/$1" &
    tail=$!
    while kill -0 "$2" 2>/dev/null; do
        sleep 2
        quiet=$(($(date +%s) - $(stat -c %Y "$work/$1")))
        if [ "$quiet" -gt "$stall" ]; then
            echo "e2e: no test ended within $stall s: those that have not ended are ended now" >>"$work/$1"
            kill -KILL -"$2" 2>/dev/null || true
            break
        fi
    done
    wait "$tail" || true
    [ "$(cat "$work/$1.status" 2>/dev/null)" = 0 ]
}

e2e --no-run
e2e --quiet -- --list 2>/dev/null | sed -n 's/: test$//p' | sort >"$work/all"
[ -s "$work/all" ] || { echo "e2e: there are no tests" >&2; exit 1; }

groups=
trap 'for group in $groups; do kill -TERM -"$group" 2>/dev/null || true; done; exit 130' INT TERM
failed=
start tests --test-threads="$threads"
tests=$! groups=$!
# They kill, stop and starve engines of their own: only root may start those. 300 containers take minutes: `make e2e-faults`.
faults=
if [ "$(id -u)" = 0 ]; then
    start faults --ignored --test-threads=2 --skip three_hundred engine_faults:: swarm:: services_wait_for_compose
    faults=$! groups="$groups $!"
else
    echo "e2e: not root: skipped the faults of an engine; run them with: sudo make e2e-faults" >&2
fi
if ! await tests "$tests"; then
    failed=yes
    sed -n 's/^test \([^ ]*\) \.\.\. \(ok\|ignored\).*/\1/p' "$work/tests" | sort >"$work/passed"
    comm -23 "$work/all" "$work/passed" | sed 's/^/e2e: FAILED: /' >&2
fi
if [ -n "$faults" ] && ! await faults "$faults"; then
    failed=yes
    echo "e2e: FAILED: the faults of an engine" >&2
fi
clean
[ -z "$failed" ]
