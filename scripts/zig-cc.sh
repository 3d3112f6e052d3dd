#!/bin/sh
# A C compiler and linker for an older glibc: `zig cc` with the target in ZIG_TARGET, such as x86_64-linux-gnu.2.31.
# cargo and the crate `cc` pass options that zig does not know; they are left out or replaced.
set -eu
: "${ZIG:?path of zig}" "${ZIG_TARGET:?target of zig}"
count=$#
while [ "$count" -gt 0 ]; do
    word=$1
    shift
    count=$((count - 1))
    case $word in
    # The name of the target differs: ZIG_TARGET has it.
    --target=* | -m64 | -march=armv8-a | -Wl,--no-undefined-version | -Wl,-znostart-stop-gc) continue ;;
    # zig has its own unwinder.
    -lgcc_s) word=-lunwind ;;
    esac
    set -- "$@" "$word"
done
exec "$ZIG" cc -target "$ZIG_TARGET" "$@"
