#!/bin/sh
# get_prometheus.sh DIR: Prometheus of this release of Debian, as DIR/prometheus. It is unpacked and not installed,
# since the package makes a user and starts a service.
set -eu
mkdir -p "$1"
cd "$1"
rm -rf root ./*.deb
timeout 300 apt-get -qq -o APT::Sandbox::User= -o Acquire::Retries=1 download prometheus
dpkg-deb -x prometheus_*.deb root
root/usr/bin/prometheus --version >/dev/null 2>&1
mv root/usr/bin/prometheus prometheus
rm -rf root ./*.deb
