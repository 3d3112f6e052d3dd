#!/bin/bash
# Measures how long builds take, and prints a table: `make bench BENCH_ONLY=build`. By hand, on a machine that does
# nothing else; it takes about half an hour on two cores.
#
# It works on a copy of the checkout in MEASURE_DIR (default: a new folder in TMPDIR), with target folders of its own.
# Only the registry's downloads are there before. MEASURE_PARTS picks rows: demo,check,test,release,dist. KEEP=1 keeps the copy.
set -euo pipefail

cd "$(dirname "$0")/.."
unset CARGO_TARGET_DIR RUSTC_WRAPPER RUSTFLAGS
parts=,${MEASURE_PARTS:-demo,check,test,release,dist},
dir=${MEASURE_DIR:-$(mktemp -d "${TMPDIR:-/tmp}/driftless-build.XXXXXX")}
mkdir -p "$dir/tree"
[ -n "${KEEP:-}" ] || trap 'rm -rf "$dir"' EXIT
git ls-files -z --cached --others --exclude-standard | tar -c --null --ignore-failed-read -T - | tar -x -C "$dir/tree"
cd "$dir/tree"
cargo fetch --locked --quiet

TIMEFORMAT='%R %U %S'
rows=() longest=
# units FILE: the 25 longest units of a report of `cargo build --timings`.
units() {
    awk -F '"' '
        /"name":/ { name = $4 }
        /"version":/ { version = $4 }
        /"target":/ { part = /\(run\)/ ? "build script with C code" : /build-script/ ? "build script, compiled" : /bin/ ? "program" : "library" }
        /"duration":/ { split($3, value, /[:, ]+/); printf "| %.1f s | %s %s | %s |\n", value[2], name, version, part }
    ' "$1" | sort -rn -t ' ' -k 2 | awk 'NR <= 25'
}
# row NAME GOAL COMMAND...: runs the command and notes its wall time and its processor time in seconds.
row() {
    local name=$1 goal=$2 real user sys
    shift 2
    echo "measure-build: $name" >&2
    { time "$@" >"$dir/log" 2>&1; } 2>"$dir/time" || { tail -n 30 "$dir/log" >&2; exit 1; }
    read -r real user sys <"$dir/time"
    rows+=("$(awk -v n="$name" -v g="$goal" -v r="$real" -v c="$user $sys" \
        'BEGIN { split(c, t, " "); printf "| %s | %s | %.1f s | %.1f s |", n, g, r, t[1] + t[2] }')")
}
wanted() { [[ $parts == *,$1,* ]]; }
edits=0
# edit FILE: appends an item, so that the compiler has something new to read.
edit() {
    [ -f "${1:-}" ] || { echo "measure-build: there is no $1; adapt this script" >&2; exit 1; }
    edits=$((edits + 1))
    printf '\n#[allow(dead_code)]\nfn edited_%s() {}\n' "$edits" >>"$1"
}
size() { awk -v b="$(stat -c %s "$1")" 'BEGIN { printf "%.1f MB", b / 1e6 }'; }

if wanted demo; then
    row "\`cargo build\` for \`make demo\`, nothing built before" "≤ 240 s" cargo build --locked --timings
    longest=$(units target/cargo-timings/cargo-timing.html)
fi
if wanted release; then
    row "\`make build\`, nothing built before" "" cargo build --release --locked
    rows+=("| its program | | $(size target/release/driftless) | |")
fi
# Any file will do that is no root of a crate.
compose=$(find crates/compose/src/read -name ports.rs)
page=$(find crates/web/src/page -name application.rs)
if wanted check; then
    cargo check --locked --workspace >/dev/null 2>&1
    edit "$compose"
    row "\`cargo check --workspace\` after an edit in \`compose\`" "≤ 6 s" cargo check --locked --workspace
    edit "$page"
    row "\`cargo check --workspace\` after an edit of a page" "≤ 6 s" cargo check --locked --workspace
fi
if wanted test; then
    cargo test --locked -p driftless-plan --no-run >/dev/null 2>&1
    edit crates/plan/src/lib.rs
    row "\`cargo test -p driftless-plan\` after an edit in \`plan\`" "≤ 30 s" cargo test --locked -p driftless-plan
fi
if wanted dist; then
    row "\`cargo build --profile dist\`, nothing built before" "" cargo build --profile dist --locked
    rows+=("| its program | ≤ 20 MB | $(size target/dist/driftless) | |")
fi

echo
echo "$(nproc) cores, $(rustc --version), load over the last minute $(cut -d ' ' -f 1 /proc/loadavg)"
echo
echo "| build | goal | wall | processor |"
echo "| --- | --- | --- | --- |"
printf '%s\n' "${rows[@]}"
if [ -n "$longest" ]; then
    printf '\n%s\n\n| wall | crate | part |\n| --- | --- | --- |\n%s\n' "The longest units of the first build:" "$longest"
fi
