#!/bin/sh
# usage: deb.sh ROOT
# The packages, each in a Debian 12 of its own: the program's installed with what it depends on, used,
# upgraded and removed; the library's with what it depends on alone, for a service that only emits.
set -eu
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
"$1/script/package" >"$place/said" 2>&1 || { cat "$place/said" && exit 1; }
cp "$1"/build/outbox_*.deb "$place/one.deb"
dpkg-deb -R "$place/one.deb" "$place/two"
# What docs/operating.md names below packaging/, whole.
for named in $(grep -o 'packaging/[a-z]*/[A-Za-z0-9_./@-]*' "$1/docs/operating.md" | sort -u); do
    for file in $(find "$1/$named" -type f); do
        find "$place/two" -type f -name "$(basename "$file")" -exec cmp -s "$file" {} \; -print | grep . >/dev/null ||
            { echo "the package has no $file" && exit 1; }
    done
done
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
# in_debian FILE...: copies them there and runs /try.sh.
in_debian() {
    mmdebstrap --variant=apt --include=ca-certificates bookworm "$place/root" >"$place/said" 2>&1 \
        --customize-hook="copy-in $* /" \
        --customize-hook='chroot "$1" sh /try.sh' || { tail -n 60 "$place/said" && exit 1; }
    rm -rf "$place/root"
}
in_debian "$place/one.deb" "$place/two.deb" "$place/try.sh"

cp "$1"/build/liboutbox-dev_*.deb "$place/dev.deb"
cp -r "$1/tests/install/emitter" "$place/emitter"
cat >"$place/try.sh" <<'E2'
set -eux
apt-get install -y --no-install-recommends cmake g++ make pkg-config
dpkg -i /dev.deb || apt-get install -y --no-install-recommends --fix-broken
[ -z "$(dpkg-query -W -f '${db:Status-Status} ${Package}\n' 'librdkafka*' 'librabbitmq*' 'libhiredis*' 'libcurl*-dev' | grep ^installed)" ]
cmake -S /emitter -B /made -DCOMPONENTS=producer
cmake --build /made
g++ -std=c++20 /emitter/main.cpp $(pkg-config --cflags --libs outbox_producer) -o /made/by_pkg_config
for program in emitter by_pkg_config; do [ -n "$("/made/$program" "/made/$program.db")" ]; done
dpkg --remove liboutbox-dev
[ ! -e /usr/include/outbox ]
E2
in_debian "$place/dev.deb" "$place/emitter" "$place/try.sh"
