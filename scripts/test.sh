#!/usr/bin/env bash
# usage: scripts/test.sh [--all | PYTEST ARGUMENT ...]
#
# Without arguments, every check: lint, format, types, the order of the folders, dependencies, then the tests, several at a
# time (see tests/conftest.py). The figures of scripts/shape.py are printed and fail nothing. Their report is
# .cache/tests.xml (see scripts/test_times.py). --all adds the slow tests and those of agents' frameworks, and
# tries properties with all examples.
# With other arguments only pytest, and with these; paths are relative to the repository. Exits with non-zero if anything
# failed. PYTHON, TORCH_INDEX_URL and INSTALLER as in quickstart.sh.
set -euo pipefail
source "$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")/_setup.sh"
cd -- "$root"
set_up cpu,dev

chosen="not bench and not install and not slow and not frameworks"
if [[ $# == 1 && $1 == --all ]]; then
    chosen="not bench and not install"
    export AWORLD_TRAIN_TESTS_TRY_ALL=1
elif (($#)); then
    exec python -m pytest "$@"
fi

failed=()
# check NAME PYTHON-ARGUMENT...
check() {
    say "$1"
    python "${@:2}" || failed+=("$1")
}
# What takes long goes beside the other checks and the first tests, and is shown at the end.
beside=$(mktemp -d)
trap 'rm -rf "$beside"' EXIT
python -m mypy >"$beside/mypy" 2>&1 &
mypy=$!
python scripts/shape.py >"$beside/shape" 2>&1 &
shape=$!
check "ruff check" -m ruff check .
check "ruff format" -m ruff format --check .
# By its file, for it cannot be run with -m, and a script's first line names the folder that it was installed in.
check lint-imports "$venv/bin/lint-imports"
check "pip check" -m pip check

((${#failed[@]} == 0)) || say "Failed so far: $(printf '%s; ' "${failed[@]}")and now the tests."
say "pytest"
code=0
# Most tests wait most of the time, so more of them run at once than there are processors. The short ones come last.
python -m pytest --processes 4 --junitxml=.cache/tests.xml tests/e2e tests/integration tests/unit \
    -m "$chosen" || code=$?
wait "$shape" || true
say "shape"
cat "$beside/shape" >&2
wait "$mypy" || failed+=(mypy)
say "mypy: $(tail -n 1 "$beside/mypy")"
if ((${#failed[@]})); then
    cat "$beside/mypy"
    say "Failed beside the tests: ${failed[*]}."
    exit 1
fi
exit "$code"
