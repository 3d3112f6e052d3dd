#!/bin/sh
# Tries the API of a running agent with schemathesis: every answer must be one that the OpenAPI document describes, and none a
# failure of the server. The agent is changed by it: use one of tests, or one whose applications may go.
#
#   scripts/test-schemathesis.sh PROGRAM http://127.0.0.1:8484/api/v1/openapi.json [OPTION…]
#   scripts/test-schemathesis.sh install DIR        installs schemathesis 4 into DIR
set -eu

if [ "${1:-}" = install ]; then
    [ -x "$2/bin/schemathesis" ] && exit 0
    python3 -m venv "$2"
    exec "$2/bin/pip" install --quiet 'schemathesis>=4.32,<5'
fi
[ $# -ge 2 ] || { sed -n 's/^#   *//p' "$0" >&2; exit 2; }
program=$(realpath "$1") document=$2
shift 2
# It writes what it found into the working directory.
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
checks=not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance,unsupported_method
"$program" run "$document" --checks "$checks" --phases examples,coverage,fuzzing \
    --max-examples "${SCHEMATHESIS_EXAMPLES:-30}" --seed 1 --request-timeout 70 --suppress-health-check all \
    --warnings off "$@"
