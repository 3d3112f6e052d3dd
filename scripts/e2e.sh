#!/bin/sh
# The end-to-end tests on the real engine, $E2E_THREADS side by side.
#
# One that hangs ends the run after $E2E_STALL seconds in which no test ended, instead of holding it up for ever.
# No test gets a second try.
#
# Then, as root, the faults of an engine, each on an engine of its own. They wait most of the time.
set -eu

# Of the whole workspace, so that its crates have the features that the other tests have compiled them with.
e2e() { cargo test --locked --workspace --test e2e "$@"; }

threads=${E2E_THREADS:-6}
stall=${E2E_STALL:-300}
here=$(dirname "$0")
work=$(mktemp -d)
said=$work/said
trap 'rm -rf "$work"' EXIT

clean() {
    "$here/test-clean.sh" e2e-
    "$here/test-clean.sh" dl-docker-
}

# Kills, stops and starves engines of its own: only root may start those. 300 containers take minutes: `make e2e-faults`.
faults() {
    if [ "$(id -u)" = 0 ]; then
        e2e -- --ignored --test-threads=8 --skip three_hundred engine_faults:: swarm:: services_wait_for_compose
    else
        echo "e2e: not root: skipped the faults of an engine; run them with: sudo make e2e-faults" >&2
    fi
}

e2e --no-run
e2e --quiet -- --list 2>/dev/null | sed -n 's/: test$//p' | sort >"$work/all"
[ -s "$work/all" ] || { echo "e2e: there are no tests" >&2; exit 1; }

# In a process group of its own, so that all of it can be ended.
: >"$said"
setsid sh -c 'status=0; cargo test --locked --workspace --test e2e -- --test-threads="$1" || status=$?; echo "$status" >"$2"' \
    e2e "$threads" "$work/status" >"$said" 2>&1 &
run=$!
tail -n +1 -f --pid="$run" "$said" &
trap 'kill -TERM -"$run" 2>/dev/null || true; exit 130' INT TERM
while kill -0 "$run" 2>/dev/null; do
    sleep 2
    quiet=$(($(date +%s) - $(stat -c %Y "$said")))
    if [ "$quiet" -gt "$stall" ]; then
        echo "e2e: no test ended within $stall s: those that have not ended are ended now" >>"$said"
        kill -KILL -"$run" 2>/dev/null || true
        break
    fi
done
wait 2>/dev/null || true
clean
if [ "$(cat "$work/status" 2>/dev/null)" != 0 ]; then
    sed -n 's/^test \([^ ]*\) \.\.\. \(ok\|ignored\).*/\1/p' "$said" | sort >"$work/passed"
    comm -23 "$work/all" "$work/passed" | sed 's/^/e2e: FAILED: /' >&2
    exit 1
fi
faults
