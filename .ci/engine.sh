#!/usr/bin/env bash
# usage: .ci/engine.sh start|stop|host
#
# A Docker engine of the tests' own, where none is installed or runs: started and stopped by hand, as root, without an
# init system. Its data is in $AWORLD_TRAIN_CI_ENGINE (default: /tmp/aworld-train-engine); `host` prints what DOCKER_HOST
# has to be. Where the base image cannot be pulled it is made from the distribution's packages.
set -euo pipefail

state=${AWORLD_TRAIN_CI_ENGINE:-/tmp/aworld-train-engine}
host=unix://$state/docker.sock
base=python:3.11-slim

say() { printf 'engine: %s\n' "$*" >&2; }

answers() { docker -H "$host" info >/dev/null 2>&1; }

# running: prints the engine's pid if it is ours and alive.
running() {
    local pid
    pid=$(cat "$state/pid" 2>/dev/null) || return 1
    [[ $(cat "/proc/$pid/comm" 2>/dev/null) == dockerd ]] && echo "$pid"
}

install() {
    local package missing=()
    command -v dockerd >/dev/null || missing+=(docker.io iptables)
    for package in "$@"; do command -v "$package" >/dev/null || missing+=("$package"); done
    ((${#missing[@]})) || return 0
    say "installing ${missing[*]}"
    apt-get update -qq >&2
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null 2>&1 ||
        { say "could not install ${missing[*]}"; exit 1; }
}

start() {
    install
    mkdir -p "$state"
    if ! answers; then
        rm -f "$state/pid" # one that was killed leaves it behind, and the next refuses to start
        setsid nohup dockerd -H "$host" --data-root "$state/data" --exec-root "$state/exec" -p "$state/pid" \
            </dev/null >"$state/dockerd.log" 2>&1 &
        for _ in $(seq 300); do
            answers && break
            sleep 0.2
        done
        answers || { tail -n 20 "$state/dockerd.log" >&2; say "it does not answer"; exit 1; }
    fi
    docker -H "$host" image inspect "$base" >/dev/null 2>&1 || timeout 120 docker -H "$host" pull -q "$base" >/dev/null 2>&1 ||
        make_base
}

# The distribution's own Python, with pip and venv, under the name that Dockerfiles ask for. What this machine needs to
# reach packages (its certificates) goes in, so the image is good for this machine only.
make_base() {
    local release sources ca=/etc/ssl/certs/ca-certificates.crt
    say "$base cannot be pulled; making one like it"
    install mmdebstrap
    release=$(. /etc/os-release && echo "$VERSION_CODENAME")
    sources=$(grep -lE "^Suites:.*$release" /etc/apt/sources.list.d/*.sources | head -n 1)
    mmdebstrap --quiet --mode=root --variant=essential \
        --include=apt,ca-certificates,python3,python3-pip,python3-venv \
        --dpkgopt=force-unsafe-io --dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-exclude=/usr/share/man/*' \
        --dpkgopt='path-exclude=/usr/share/locale/*' \
        --customize-hook="cp $ca \"\$1$ca\"" --customize-hook='ln -sf python3 "$1/usr/bin/python"' \
        "$release" "$state/base.tar" "${sources:-/etc/apt/sources.list}"
    docker -H "$host" import -c 'CMD ["python3"]' \
        -c "ENV PIP_CERT=$ca SSL_CERT_FILE=$ca REQUESTS_CA_BUNDLE=$ca PIP_BREAK_SYSTEM_PACKAGES=1 LANG=C.UTF-8" \
        "$state/base.tar" "$base" >/dev/null
    rm -f "$state/base.tar"
}

stop() {
    local pid
    pid=$(running) || return 0
    kill "$pid"
    for _ in $(seq 300); do
        running >/dev/null || return 0
        sleep 0.2
    done
    say "process $pid does not end"
    exit 1
}

case ${1:-} in
    start) start ;;
    stop) stop ;;
    host) echo "$host" ;;
    *) sed -n '2,6s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
esac
