#!/bin/sh
# get_babeltrace.sh DIR: babeltrace2 of Debian's next release, which reads CTF 2, into DIR.
#
# This release's reads CTF 1.8 only. The packages are taken from the mirror that is configured here,
# checked by Debian's keys, unpacked and not installed: for any user, beside the system's own. They
# run by their own loader with their own libraries. DIR/babeltrace2 is the command.
set -eu
suite=trixie
dir=$(mkdir -p "$1" && cd "$1" && pwd)
keyring=/usr/share/keyrings/debian-archive-keyring.gpg
mirror=$("$(dirname "$0")/../support/debian_mirror.sh")

apt="$dir/apt"
mkdir -p "$apt/lists/partial" "$apt/archives/partial" "$dir/root"
: >"$apt/status"
echo "deb [signed-by=$keyring] $mirror $suite main" >"$apt/sources.list"
get() {
	timeout 300 apt-get -qq -y -o Dir::Etc::SourceList="$apt/sources.list" -o Dir::Etc::SourceParts=- \
		-o Dir::State::Lists="$apt/lists" -o Dir::State::status="$apt/status" \
		-o Dir::Cache::Archives="$apt/archives" -o Dir::Cache::pkgcache= -o Dir::Cache::srcpkgcache= \
		-o APT::Sandbox::User= -o Debug::NoLocking=1 -o Acquire::Languages=none \
		-o Acquire::Retries=1 "$@"
}
get update
get install --download-only --no-install-recommends babeltrace2
for package in "$apt"/archives/*.deb; do dpkg-deb -x "$package" "$dir/root"; done
rm -rf "$apt"

libraries="$dir/root/usr/lib/x86_64-linux-gnu"
cat >"$dir/babeltrace2.new" <<END
#!/bin/sh
export BABELTRACE_PLUGIN_PATH="$libraries/babeltrace2/plugins"
exec "$libraries/ld-linux-x86-64.so.2" --library-path "$libraries" "$dir/root/usr/bin/babeltrace2" "\$@"
END
chmod +x "$dir/babeltrace2.new"
"$dir/babeltrace2.new" --version >/dev/null
mv "$dir/babeltrace2.new" "$dir/babeltrace2"
