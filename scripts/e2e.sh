#!/bin/sh
# The end-to-end tests on the real engine, in two streams at the same time: $E2E_THREADS tests side by side, and those that take
# minutes and mostly wait, so that the machine is not idle at the end. As root, these are also the faults of an engine, each on an
# engine of its own.
#
# A test that hangs ends the run after $E2E_STALL seconds in which no test ended, instead of holding it up for ever.
# No test gets a second try.
set -eu

# Of the whole workspace, so that its crates have the features that the other tests have compiled them with.
e2e() { cargo test --locked --workspace --test e2e "$@"; }

# The tests of this name take minutes.
long=traffic::no_request_to_a

here=$(dirname "$0")
case "${1:-}" in
short)
    e2e -- --test-threads="${E2E_THREADS:-4}" --skip "$long"
    exit
    ;;
long)
    e2e -- --test-threads=2 "$long"
    # Kills, stops and starves engines of its own: only root may start those. 300 containers take minutes: `make e2e-faults`.
    if [ "$(id -u)" = 0 ]; then
        e2e -- --ignored --test-threads=2 --skip three_hundred engine_faults:: swarm::
    else
        echo "e2e: not root: skipped the faults of an engine; run them with: sudo make e2e-faults"
    fi
    exit
    ;;
esac

stall=${E2E_STALL:-300}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# In a process group of its own, so that all of it can be ended.
start() {
    : >"$work/$1"
    setsid sh -c 'status=0; "$1" "$2" || status=$?; echo "$status" >"$3"' e2e "$0" "$1" "$work/$1.status" >"$work/$1" 2>&1 &
}

end() {
    for run in "$run_short" "$run_long"; do kill -"$1" -"$run" 2>/dev/null || true; done
}

is_running() {
    kill -0 "$run_short" 2>/dev/null || kill -0 "$run_long" 2>/dev/null
}

e2e --no-run
e2e --quiet -- --list 2>/dev/null | sed -n 's/: test$//p' | sort >"$work/all"
[ -s "$work/all" ] || { echo "e2e: there are no tests" >&2; exit 1; }

start short
run_short=$!
start long
run_long=$!
tail -q -n +1 -f --pid="$run_short" "$work/short" &
tail -q -n +1 -f --pid="$run_long" "$work/long" &
trap 'end TERM; exit 130' INT TERM
while is_running; do
    sleep 2
    last=$(stat -c %Y "$work/short" "$work/long" | sort -n | tail -1)
    if [ $(($(date +%s) - last)) -gt "$stall" ]; then
        echo "e2e: no test ended within $stall s: those that have not ended are ended now" >&2
        end KILL
        break
    fi
done
wait 2>/dev/null || true
"$here/test-clean.sh" e2e-
"$here/test-clean.sh" dl-docker-
if [ "$(cat "$work/short.status" 2>/dev/null)" != 0 ] || [ "$(cat "$work/long.status" 2>/dev/null)" != 0 ]; then
    cat "$work/short" "$work/long" | sed -n 's/^test \([^ ]*\) \.\.\. \(ok\|ignored\).*/\1/p' | sort -u >"$work/passed"
    comm -23 "$work/all" "$work/passed" | sed 's/^/e2e: FAILED: /' >&2
    # Those that are ignored in one stream run in the other.
    sed -n 's/^test \([^ ]*\) \.\.\. FAILED.*/e2e: FAILED: \1/p' "$work/long" >&2
    exit 1
fi
