#!/bin/sh
# Installs what the tests need and this machine lacks: Git with its HTTP server, a local registry, an SSH server,
# GnuPG, OpenSSL, a static busybox, curl, xmllint, promtool,
# Alertmanager, an SMTP server. Does nothing, and needs no root, where all of it is there.
#
#   scripts/test-tools.sh [git]              with `git`, Git alone
#   scripts/test-tools.sh browser DIR        Chromium with its driver, and axe in DIR
#   scripts/test-tools.sh proxies            haproxy and nginx, for the benchmarks
set -eu

say() { echo "test-tools: $*" >&2; }
fail() {
    say "$*"
    exit 1
}

missing=
# need PACKAGE PROGRAM...: any of the programs will do. Servers often lie outside a user's PATH.
need() {
    package=$1
    shift
    for program in "$@"; do
        PATH="$PATH:/usr/sbin:/sbin" command -v "$program" >/dev/null 2>&1 && return
    done
    missing="$missing $package"
}

need git git
if [ "${1:-all}" = browser ]; then
    need chromium chromium chromium-browser google-chrome
    need chromium-driver chromedriver
    need npm npm
fi
if [ "${1:-all}" = proxies ]; then
    need haproxy haproxy
    need nginx nginx
    [ -e /usr/lib/nginx/modules/ngx_stream_module.so ] || missing="$missing libnginx-mod-stream"
fi
if [ "${1:-all}" = all ]; then
    need openssh-client ssh-keygen
    need openssh-server sshd
    need docker-registry docker-registry
    need curl curl
    need gnupg gpg
    need openssl openssl
    need libxml2-utils xmllint
    need prometheus promtool
    need prometheus-alertmanager prometheus-alertmanager
    need python3-aiosmtpd aiosmtpd
    # Only the static one runs in an image without any library.
    busybox=$(command -v busybox || true)
    if [ -z "$busybox" ] || ldd "$busybox" >/dev/null 2>&1; then
        missing="$missing busybox-static"
    fi
fi
if command -v git >/dev/null 2>&1 && [ ! -x "$(git --exec-path)/git-http-backend" ]; then
    fail "$(command -v git) comes without git-http-backend; install the full package of Git"
fi
# axe checks that a page is accessible. It is a script in a package of npm and needs nothing else.
fetch_axe() {
    [ "${1:-all}" = browser ] && [ ! -e "$2/axe.min.js" ] || return 0
    mkdir -p "$2"
    folder=$(mktemp -d)
    (cd "$folder" && npm pack --silent axe-core@4 >/dev/null && tar xzf axe-core-*.tgz package/axe.min.js) ||
        fail "could not fetch axe-core with npm"
    mv "$folder/package/axe.min.js" "$2/axe.min.js"
    rm -rf "$folder"
}

if [ -z "$missing" ]; then
    fetch_axe "$@"
    exit 0
fi

command -v apt-get >/dev/null 2>&1 || fail "please install by hand:$missing"
if [ "$(id -u)" = 0 ]; then
    as_root=
elif command -v sudo >/dev/null 2>&1; then
    as_root=sudo
else
    fail "need root or sudo to install:$missing"
fi
say "installing$missing"
# A freshly installed service must not start: the tests start their own, on their own ports.
policy=/usr/sbin/policy-rc.d
if [ ! -e "$policy" ]; then
    printf '#!/bin/sh\nexit 101\n' | $as_root tee "$policy" >/dev/null
    $as_root chmod +x "$policy"
    trap '$as_root rm -f "$policy"' EXIT
fi
$as_root apt-get -qq update || fail "apt-get update failed"
# shellcheck disable=SC2086
$as_root env DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends $missing >/dev/null ||
    fail "apt-get could not install$missing"
fetch_axe "$@"
