#!/bin/sh
# Makes sure that a Docker Engine answers on this machine: installs Debian's or Ubuntu's docker.io where there
# is none, starts it where it is stopped, and does nothing where one runs. Safe to run again and again.
set -eu

log=/var/log/driftless-dockerd.log
pidfile=/var/run/docker.pid

say() { echo "ensure-docker: $*" >&2; }
fail() {
    say "$*"
    exit 1
}

as_root() {
    if [ "$(id -u)" = 0 ]; then
        "$@"
    elif command -v sudo >/dev/null 2>&1; then
        sudo "$@"
    else
        fail "need root for \`$*\`: run this as root, or install sudo"
    fi
}

answers() { timeout 10 docker version --format '{{.Server.Version}}' >/dev/null 2>&1; }
answers_root() { as_root timeout 10 docker version --format '{{.Server.Version}}' >/dev/null 2>&1; }

# wait_for SECONDS: true as soon as the engine answers.
wait_for() {
    left=$(($1 * 4))
    while [ "$left" -gt 0 ]; do
        answers_root && return 0
        sleep 0.25
        left=$((left - 1))
    done
    return 1
}

install_engine() {
    command -v apt-get >/dev/null 2>&1 ||
        fail "no Docker Engine, and no apt-get to install one: see https://docs.docker.com/engine/install/"
    say "installing docker.io"
    as_root apt-get -qq update || fail "apt-get update failed"
    packages="docker.io iptables ca-certificates"
    # Newer releases have the client in a package of its own.
    if apt-cache show docker-cli >/dev/null 2>&1; then
        packages="$packages docker-cli"
    fi
    # shellcheck disable=SC2086
    as_root env DEBIAN_FRONTEND=noninteractive \
        apt-get -qq install -y --no-install-recommends $packages >/dev/null ||
        fail "apt-get could not install $packages"
}

start_engine() {
    if [ -d /run/systemd/system ]; then
        say "starting docker with systemd"
        as_root systemctl start docker ||
            fail "systemd could not start it; see: journalctl -u docker -n 50"
        wait_for 60 || fail "started, but it does not answer; see: journalctl -u docker -n 50"
        return
    fi
    if [ -x /etc/init.d/docker ]; then
        say "starting docker with its init script"
        if as_root service docker start >/dev/null 2>&1 && wait_for 10; then
            return
        fi
        say "the init script did not bring it up"
    fi
    # Containers and minimal machines have no init system, or one whose script may not raise limits.
    say "starting dockerd in the background; its log is $log"
    as_root sh -c "mkdir -p '${log%/*}' && setsid dockerd --pidfile '$pidfile' >>'$log' 2>&1 </dev/null &"
    if ! wait_for 60; then
        as_root tail -n 15 "$log" >&2 || true
        fail "dockerd does not answer; the end of $log stands above"
    fi
}

if command -v docker >/dev/null 2>&1 && answers; then
    exit 0
fi
if [ -n "${DOCKER_HOST:-}" ] && [ "$DOCKER_HOST" != unix:///var/run/docker.sock ]; then
    fail "the engine at DOCKER_HOST=$DOCKER_HOST does not answer; it is not this script's to start"
fi
if ! command -v dockerd >/dev/null 2>&1 || ! command -v docker >/dev/null 2>&1; then
    install_engine
fi
answers_root || start_engine
answers || fail "the engine runs, but $(id -un) may not use it: sudo usermod -aG docker $(id -un), log in again"
say "the engine answers ($(docker version --format '{{.Server.Version}}'))"
