#!/bin/sh
# usage: systemd.sh ROOT OUTBOX
# What systemd itself says of the unit, without one that runs: every line is known, and what is left exposed is the
# network. The relay's command line in it is one that the binary takes.
set -eu
unit=$1/packaging/systemd/outbox-relay@.service
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
command=$(sed -n 's|^ExecStart=/usr/bin/outbox ||p' "$unit")
[ -n "$command" ] || { echo "no ExecStart" && exit 1; }

sed "s|^ExecStart=/usr/bin/outbox |ExecStart=$2 |" "$unit" >"$place/outbox-relay@shop.service"
systemd-analyze verify --man=no "$place/outbox-relay@shop.service" >"$place/said" 2>&1 || failed=yes
[ -z "${failed:-}" ] && [ ! -s "$place/said" ] || { cat "$place/said" && exit 1; }
# In tenths, out of a hundred.
systemd-analyze security --offline=true --threshold=15 "$place/outbox-relay@shop.service" >"$place/said" 2>&1 ||
    { grep -v '✓' "$place/said" && exit 1; }

printf 'to = "null:"\n[source]\nurl = "sqlite:///nowhere/shop.db"\n' >"$place/shop.toml"
# shellcheck disable=SC2046 # words
"$2" $(echo "$command" | sed "s|/etc/outbox/%i.toml|$place/shop.toml|") >"$place/said" 2>&1 && code=0 || code=$?
[ "$code" -eq 3 ] || { echo "the command of the unit ends with $code: $(cat "$place/said")" && exit 1; }
