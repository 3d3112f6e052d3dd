#!/bin/sh
# What a process of a container sees of its world, a line each: what it is, a tab, and its value. Then it stays.
# FILES names folders to be shown with all that is in them, RUN has commands whose output is shown, SYSCTLS names
# settings of the kernel, NETWORK=host leaves out what is the host's then, ONCE=yes ends it.
say() { printf '%s\t%s\n' "$1" "$2"; }

if [ -n "${BEFORE-}" ]; then eval "$BEFORE"; fi
words=
for it in "$@"; do words="$words[$it]"; done
say arguments "$words"
tr '\n\0' '\001\n' <"/proc/$$/environ" | sort | while IFS= read -r it; do say "variable ${it%%=*}" "${it#*=}"; done
say user "$(id -u)"
say group "$(id -g)"
say groups "$(id -G | tr ' ' '\n' | sort -nu | tr '\n' ' ')"
say folder "$(pwd)"
say hostname "$(hostname)"
say input "$(readlink /proc/$$/fd/0 | sed 's/:.*//; s,/dev/pts/.*,a terminal,')"
say umask "$(umask)"

# Of mounts, those that somebody asked for.
while read -r _ _ _ _ place options rest; do
    case $place in
    /proc* | /sys* | /dev | /dev/pts | /dev/mqueue | /dev/shm | /etc/hosts | /etc/hostname | /etc/resolv.conf) continue ;;
    /run/.containerenv | /run/secrets | /dev/console | /dev/full | /dev/null | /dev/random | /dev/tty) continue ;;
    /dev/urandom | /dev/zero) continue ;;
    esac
    kind=${rest#*- }
    kind=${kind%% *}
    [ "$kind" = tmpfs ] || kind=disk
    say "mount $place" "${options%%,*} $kind"
    [ "$place" = / ] || say "place $place" "$(stat -c '%A %u:%g' "$place")"
done <"/proc/$$/mountinfo"
for folder in ${FILES-}; do
    find -L "$folder" 2>/dev/null | grep -v '/\.\.' | sort | while IFS= read -r it; do
        say "file $it" "$(stat -L -c '%A %u:%g' "$it") $([ ! -f "$it" ] || tr '\n' '\001' <"$it")"
    done
done

# On the network of the host these are the host's.
if [ "${NETWORK-}" != host ]; then
    own=$(ip -o -4 addr show dev eth0 2>/dev/null | sed 's/.* inet //; s,/.*,,')
    grep -v '^#' /etc/hosts | while read -r address names; do
        [ "$address" != "${own:-none}" ] || address=own
        say "host $address" "$names"
    done
    while read -r key values; do say "resolver $key" "$values"; done </etc/resolv.conf
fi

# Capabilities are bits.
while read -r key value; do
    case $key in
    CapEff: | CapBnd: | CapInh: | CapAmb:)
        bit=0
        value=$((0x$value))
        while [ $bit -le 40 ]; do
            if [ $((value >> bit & 1)) = 1 ]; then say "capability ${key%:} $bit" yes; fi
            bit=$((bit + 1))
        done
        ;;
    NoNewPrivs: | Seccomp:) say "process ${key%:}" "$value" ;;
    esac
done <"/proc/$$/status"

# limit NAME CONTROLLER FILE...: either the container's own folder of control groups is mounted, or that of all; and
# files have other names in the second version of control groups.
limit() {
    what=$1
    own=$(sed -n "s/^[0-9]*:$2://p" /proc/self/cgroup)
    for folder in "/sys/fs/cgroup/$2$own" "/sys/fs/cgroup/$2" /sys/fs/cgroup; do
        for it in "$folder/$3" "$folder/$4"; do
            if [ -r "$it" ]; then
                say "limit $what" "$(cat "$it")"
                return
            fi
        done
    done
}
limit memory memory memory.limit_in_bytes memory.max
limit 'memory asked for' memory memory.soft_limit_in_bytes memory.low
limit cpu cpu cpu.cfs_quota_us cpu.max
limit 'share of cpu' cpu cpu.shares cpu.weight
limit pids pids pids.max pids.max
say "limit /dev/shm" "$(df -k /dev/shm | sed -n '2s/^[^ ]* *\([0-9]*\) .*/\1/p')"
for it in ${SYSCTLS-}; do say "setting $it" "$(cat "/proc/sys/$(echo "$it" | tr . /)")"; done
if [ -n "${RUN-}" ]; then say ran "$(eval "$RUN" 2>&1 | tr '\n' '\001')"; fi
say end ''
[ "${ONCE-}" = yes ] || while :; do sleep 100000; done
