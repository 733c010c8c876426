#!/usr/bin/env bash
# usage: scripts/gpu-proof.sh [--device cuda|cpu] [--out FILE] [--folder DIR]
#
# Proves on a GPU machine what CI proves without one: see scripts/gpu_proof.py. Installs nothing and needs no network.
# PYTHON is the interpreter that has aworld-train[gpu]; by default that of .venv, or of .venv-vllm with --device cpu.
set -euo pipefail
root=$(cd -- "$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")/.." && pwd -P)
venv=.venv
[[ " $* " != *" cpu "* && " $* " != *"=cpu "* ]] || venv=.venv-vllm
python=${PYTHON:-$root/$venv/bin/python}
if [[ ! -x $python ]]; then
    echo "error: There is no $python. Install the profile first (docs/install.md), or say where it is: PYTHON=..." >&2
    exit 2
fi
exec "$python" "$root/scripts/gpu_proof.py" "$@"
