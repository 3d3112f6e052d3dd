#!/bin/sh
# Builds the documents as a book with search in target/book, and checks every link of it. Needs mdbook, which
# `scripts/book.sh install` compiles into target/test-tools once.
#
# Pages link to files outside of docs (`../config/driftless.yaml`), which a book cannot reach. So a copy of docs is built,
# with the files that it links to in its folder `project`; there the README is the first page.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
cd "$root"
targets=${CARGO_TARGET_DIR:-$root/target}
PATH=$targets/test-tools/mdbook/bin:$PATH
version=0.4.52
if [ "${1:-}" = install ]; then
    command -v mdbook >/dev/null 2>&1 || cargo install --quiet --locked mdbook --version "$version" \
        --no-default-features --features search --root "$targets/test-tools/mdbook"
    shift
fi
command -v mdbook >/dev/null 2>&1 || { echo "book: mdbook is missing: scripts/book.sh install" >&2; exit 1; }

source=$targets/book-source
rm -rf "$source" "$targets/book"
mkdir -p "$source/docs/project"
cp -R docs/. "$source/docs"
cp README.md CHANGELOG.md CONTRIBUTING.md SECURITY.md LICENSE deny.toml "$source/docs/project"
cp -R config deploy "$source/docs/project"
mkdir -p "$source/docs/project/crates/web"
cp crates/web/openapi.json "$source/docs/project/crates/web"
# A page with the name README becomes index.html, and links to it do not.
mv "$source/docs/adr/README.md" "$source/docs/adr/index.md"
sed -i 's|](\.\./README\.md|](about.md|g; s|](\.\./|](project/|g; s|](adr/README\.md|](adr/index.md|g' "$source"/docs/*.md
sed -i 's|](\.\./\.\./|](../project/|g; s|](README\.md|](index.md|g' "$source"/docs/adr/*.md
sed -i 's|](docs/adr/README\.md|](../adr/index.md|g; s|](docs/|](../|g; s|](README\.md|](../about.md|g' "$source"/docs/project/*.md
# The first page is copied to index.html, so it is in the same folder.
sed 's|](\.\./|](@|g; s|](\([A-Za-z][A-Za-z/.]*\))|](project/\1)|g; s|](@|](|g' "$source/docs/project/README.md" >"$source/docs/about.md"
rm "$source/docs/project/README.md"
{
    sed '/^# Summary/a\
\
[What Driftless is](about.md)' "$source/docs/SUMMARY.md" | while IFS= read -r line; do
        echo "$line"
        case $line in
        *"(adr/index.md)"*)
            for record in "$source"/docs/adr/0*.md; do
                echo "  - [$(sed -n '1s/^# //p' "$record")](adr/${record##*/})"
            done
            ;;
        esac
    done
    printf '\n# Project\n\n'
    printf -- '- [%s](project/%s)\n' Changes CHANGELOG.md Contributing CONTRIBUTING.md "Security policy" SECURITY.md
} >"$source/summary"
mv "$source/summary" "$source/docs/SUMMARY.md"
mdbook build "$source/docs" --dest-dir "$targets/book"
exec python3 scripts/check-book.py "$targets/book"
