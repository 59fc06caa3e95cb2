#!/usr/bin/env bash
# Debian 12 packages of Hilum: the one place that names them. Root: installs what is missing. Otherwise: prints the command.
# Needed to run: Python 3.11 and its shared library (Triton's Python backend links it), and
# libseccomp (Triton's sandbox). A C compiler is for two files, without which
# torch resizes pictures in three times the time, and Python receives large objects; the second needs a header. The rest are the real
# peers of tests and demo.
set -euo pipefail

runtime=(python3.11 python3.11-venv libpython3.11 libseccomp2)
compiler=(gcc libc6-dev libxxhash-dev)
peers=(dcmtk dicom3tools pixelmed-apps libpixelmed-java default-jre-headless orthanc orthanc-dicomweb postgresql pgbouncer prometheus
       chromium fonts-dejavu-core poppler-utils e2fsprogs xfsprogs systemd rsyslog rsyslog-openssl jing
       haproxy iproute2 libfaketime) # the last three: hosts of the fleet, load_tests/fleet

if ! command -v dpkg-query >/dev/null; then
    echo "debian-packages: not a Debian system; you need the equivalents of: ${runtime[*]} ${compiler[*]}. Tests and demo also use: ${peers[*]}"
    exit 0
fi

missing=()
for package in "${runtime[@]}" "${compiler[@]}" "${peers[@]}"; do
    [ "$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null)" = installed ] || missing+=("$package")
done
[ ${#missing[@]} -gt 0 ] || exit 0

if [ "$(id -u)" -ne 0 ]; then
    echo "debian-packages: missing: ${missing[*]}. Hilum works without the peers and the compiler: with fewer tests, a plainer demo, slower resizes and receipt. To install:"
    echo "    sudo $0"
    exit 0
fi

# Orthanc, PostgreSQL, PgBouncer, Prometheus and rsyslog are started by the tests that need them, on their own ports: keep apt from starting Debian's.
policy=/usr/sbin/policy-rc.d
if [ ! -e "$policy" ]; then
    printf '#!/bin/sh\nexit 101\n' >"$policy"
    chmod 755 "$policy"
    trap 'rm -f "$policy"' EXIT
fi
export DEBIAN_FRONTEND=noninteractive
echo "debian-packages: installing ${missing[*]}"
apt-get update -qq
apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null

# The policy above stops the start during installation; without this the next boot would start them.
if [ -d /run/systemd/system ]; then
    for service in orthanc postgresql pgbouncer prometheus rsyslog haproxy; do
        case " ${missing[*]} " in *" $service "*) systemctl disable --quiet "$service" || true ;; esac
    done
fi
