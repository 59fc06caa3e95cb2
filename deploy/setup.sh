#!/usr/bin/env bash
# Set-up of a checkout: Debian packages, the virtual environment .venv with exact pins, the embedded
# Triton in an environment of its own (.venv/triton), the two packages of this repository (editable,
# with their C compiled).
# A second run does nothing unless a lock, pyproject.toml, the C or this script changed.
set -euo pipefail
cd "$(dirname "$0")/.."

stamp=.venv/.set-up
compiled="preprocessing/hilum_preprocessing/resize/resize server/hilum/receive/storage/transfer"
has_all() { for each in $compiled; do [ -f "$each.$1" ] || return 1; done; }
triton=server/hilum/triton
wanted=$(cat deploy/lock/dev.txt deploy/lock/torch-*.txt $triton/lock.txt $triton/installation.py pyproject.toml preprocessing/*.toml preprocessing/*.py deploy/setup.sh deploy/debian-packages.sh deploy/dcmtk_names.py ${compiled// /.c }.c | sha256sum)
[ -f "$stamp" ] && [ "$(cat "$stamp")" = "$wanted" ] && { has_all so || .venv/bin/python preprocessing/compile_c.py 2>/dev/null || true; } && exit 0

say() { printf '\033[1m[set-up]\033[0m %s\n' "$*"; }

say "Debian packages"
deploy/debian-packages.sh || say "Debian packages could not be installed; going on without them"

# The distribution's interpreter first: it is compiled with a profile of its use, one made by hand (pyenv) seldom is, and takes a quarter longer.
python=""
for candidate in ${PYTHON:+"$PYTHON"} /usr/bin/python3.11 python3.11 python3.12 python3.13; do
    if "$candidate" -c 'import ensurepip, sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' 2>/dev/null; then python=$candidate; break; fi
done
[ -n "$python" ] || { say "Python 3.11 to 3.13 with venv is needed. Debian 12: sudo deploy/debian-packages.sh"; exit 1; }

[ -x .venv/bin/python ] || { say "virtual environment .venv ($("$python" --version))"; "$python" -m venv .venv; }
log=.venv/set-up.log

# pip's words go to the log; a terminal shows the current one. A failure shows the end of the log.
# Only files whose hash a lock has are installed, and only wheels: a source archive would run its
# build with packages that no lock names.
install() {
    local show=(awk '{ printf "\r\033[K  %s", substr($0, 1, 76); fflush() } END { printf "\r\033[K" }')
    [ -t 1 ] || show=(awk '/^(Building|Successfully|ERROR)/ { print "  " substr($0, 1, 120); fflush() }')
    .venv/bin/python -m pip --disable-pip-version-check install --progress-bar off --no-deps "$@" 2>&1 | tee -a "$log" | "${show[@]}" ||
        { tail -n 15 "$log" | cut -c 1-200 >&2; return 1; }
}
install_lock() { install --require-hashes --only-binary :all: "${@:2}" -r "deploy/lock/$1"; }

# PyPI's torch for Linux brings 2 GB of CUDA libraries; without an NVIDIA driver the CPU build of the same version is enough.
# It is asked for in its own index alone (TORCH_INDEX_URL): neither index answers for the other's.
install_torch() {
    if command -v nvidia-smi >/dev/null; then
        say "torch with NVIDIA's libraries (deploy/lock/torch-cuda.txt)"
        install_lock torch-cuda.txt
        return
    fi
    say "torch for CPU (deploy/lock/torch-cpu.txt)"
    : >"$log"
    install_lock torch-cpu.txt --retries 1 --timeout 20 --index-url "${TORCH_INDEX_URL:-https://download.pytorch.org/whl/cpu}" && return
    if grep -q 'DO NOT MATCH THE HASHES' "$log"; then
        say "STOP: torch's file is not the one that deploy/lock/torch-cpu.txt names: docs/decisions/locks-with-hashes.md"
        return 1
    fi
    say "no CPU build found; taking PyPI's build (deploy/lock/torch-cuda.txt, 2 GB)"
    install_lock torch-cuda.txt
}

# Beside the rest: it waits for the network while the rest unpacks, and the other way round.
say "the embedded Triton in .venv/triton (numpy 1, which its Python stub needs)"
.venv/bin/python $triton/installation.py >.venv/triton.log 2>&1 &
triton_installation=$!

# An older checkout had it here, with numpy 1.
.venv/bin/python -m pip --disable-pip-version-check uninstall --quiet --yes nvidia-pytriton >>"$log" 2>&1
install_torch
say "packages of deploy/lock/dev.txt (the first time this takes a minute or more)"
install_lock dev.txt
say "hilum-preprocessing and hilum (editable; compile ${compiled// /.c and }.c)"
install --no-build-isolation --editable preprocessing --editable .
has_all so || say "$(.venv/bin/python preprocessing/compile_c.py 2>&1)"
.venv/bin/python deploy/dcmtk_names.py
.venv/bin/python -m pip check
# Without it all else works, with a Triton elsewhere: its own words say what is missing.
wait "$triton_installation" || { say "the embedded Triton is not installed"; cat .venv/triton.log; exit 1; }
printf '%s' "$wanted" >"$stamp"
say "done"
