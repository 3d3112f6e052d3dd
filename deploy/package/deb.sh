#!/bin/sh
# Makes a Debian package from the folder of a release: deb.sh TREE VERSION ARCHITECTURE GLIBC FILE. See scripts/dist.sh.
# DIST_QUICK=1 does not compress it.
set -eu
tree=$1 version=$2 arch=$3 glibc=$4 file=$5
package=$(mktemp -d)
trap 'rm -rf "$package"' EXIT
here=$(cd "$(dirname "$0")" && pwd)
put() { install -D -m "$1" "$2" "$package/$3"; }

put 755 "$tree/driftless" usr/bin/driftless
sed 's|/usr/local/bin/driftless|/usr/bin/driftless|' "$tree/driftless.service" >"$package/unit"
put 644 "$package/unit" lib/systemd/system/driftless.service
rm "$package/unit"
put 600 "$here/driftless.yaml" etc/driftless/driftless.yaml
chmod 700 "$package/etc/driftless"
put 644 "$tree/driftless.schema.json" usr/share/driftless/driftless.schema.json
for name in README.md CHANGELOG.md driftless.example.yaml; do put 644 "$tree/$name" "usr/share/doc/driftless/$name"; done
for page in "$tree"/docs/*.md; do
    [ ! -e "$page" ] || put 644 "$page" "usr/share/doc/driftless/docs/${page##*/}"
done
put 644 "$tree/LICENSE" usr/share/doc/driftless/copyright
for page in "$tree"/man/*.1; do
    [ -e "$page" ] || continue
    mkdir -p "$package/usr/share/man/man1"
    gzip -9nc "$page" >"$package/usr/share/man/man1/${page##*/}.gz"
done
if [ -e "$tree/completions/driftless.bash" ]; then
    put 644 "$tree/completions/driftless.bash" usr/share/bash-completion/completions/driftless
    put 644 "$tree/completions/_driftless" usr/share/zsh/vendor-completions/_driftless
    put 644 "$tree/completions/driftless.fish" usr/share/fish/vendor_completions.d/driftless.fish
fi

mkdir "$package/DEBIAN"
cat >"$package/DEBIAN/control" <<CONTROL
Package: driftless
Version: $version
Architecture: $arch
Maintainer: The Driftless authors <driftless@localhost>
Section: admin
Priority: optional
Depends: libc6 (>= $glibc), ca-certificates
Recommends: docker.io | docker-ce, openssh-client
Suggests: git
Installed-Size: $(du -sk "$package" | cut -f1)
Description: GitOps agent for Docker hosts
 Makes what runs on a Docker host equal to what a Git repository says, and
 keeps it so. Reads Compose files and Kubernetes manifests.
CONTROL
echo /etc/driftless/driftless.yaml >"$package/DEBIAN/conffiles"
for script in postinst prerm postrm; do install -m 755 "$here/$script" "$package/DEBIAN/$script"; done
compression=xz
[ -z "${DIST_QUICK:-}" ] || compression=none
dpkg-deb --root-owner-group "-Z$compression" --build "$package" "$file" >&2
