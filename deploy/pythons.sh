#!/usr/bin/env bash
# Environments of Python 3.12 and 3.13 in state/, where these interpreters are at hand, with the
# server's packages by their locks: for tests/integration/operations/test_other_pythons.py. torch for CPU, or with NVIDIA's
# libraries where that index cannot be reached (2 GB).
set -euo pipefail
cd "$(dirname "$0")/.."
locked=(--quiet --disable-pip-version-check --no-deps --require-hashes --only-binary :all:)
for version in 3.12 3.13; do
    python=$(compgen -G "${PYENV_ROOT:-$HOME/.pyenv}/versions/$version.*/bin/python" | tail -n 1 || true)
    python=${python:-$(command -v "python$version" || true)}
    [ -n "$python" ] || { echo "pythons: no Python $version here"; continue; }
    folder=state/python$version
    [ -x "$folder/bin/python" ] || "$python" -m venv "$folder"
    install() { "$folder/bin/python" -m pip install "${locked[@]}" "$@"; }
    install --retries 1 --timeout 20 --index-url "${TORCH_INDEX_URL:-https://download.pytorch.org/whl/cpu}" -r deploy/lock/torch-cpu.txt 2>/dev/null ||
        install -r deploy/lock/torch-cuda.txt
    install -r deploy/lock/server.txt
    echo "pythons: $folder ($("$folder/bin/python" --version))"
done
