#!/bin/sh
# usage: deb.sh ROOT
# The package in a Debian 12 of its own: installed with what it depends on, used, upgraded and removed.
set -eu
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
"$1/script/package" >"$place/said" 2>&1 || { cat "$place/said" && exit 1; }
cp "$1"/build/outbox_*.deb "$place/one.deb"
dpkg-deb -R "$place/one.deb" "$place/two"
sed -i 's/^Version: .*/Version: 99.0/' "$place/two/DEBIAN/control"
dpkg-deb -b "$place/two" "$place/two.deb" >/dev/null

# What runs in it.
cat >"$place/try.sh" <<'E2'
set -eux
dpkg -i /one.deb || apt-get install -y --fix-broken
outbox version
outbox migrate --db sqlite:///shop.db
outbox relay --from sqlite:///shop.db --to null: --check
for file in $(dpkg -L outbox); do [ -e "$file" ] || case $file in /usr/share/man/* | /usr/share/doc/*) ;; *) exit 1 ;; esac; done
dpkg -i /two.deb
[ "$(dpkg-query -W -f '${Version}' outbox)" = 99.0 ]
outbox status --db sqlite:///shop.db
dpkg --remove outbox
[ ! -e /usr/bin/outbox ]
[ -z "$(find /usr /etc /var/lib -xdev -name '*outbox*' ! -path '/var/lib/dpkg/*' ! -path '/var/lib/apt/*')" ]
[ -e /shop.db ]
E2
mmdebstrap --variant=apt --include=ca-certificates bookworm "$place/root" >"$place/said" 2>&1 \
    --customize-hook="copy-in $place/one.deb $place/two.deb $place/try.sh /" \
    --customize-hook='chroot "$1" sh /try.sh' || { tail -n 60 "$place/said" && exit 1; }
