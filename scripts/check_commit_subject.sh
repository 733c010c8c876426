#!/usr/bin/env bash
# usage: scripts/check_commit_subject.sh FILE
#
# Whether the message in FILE has a subject such as "reward: score answers that time out as wrong": an area in front, and
# at most 72 characters. Merges, reverts and fixups have git's own subjects.
set -euo pipefail
[[ $# == 1 && -r $1 ]] || {
    echo "usage: scripts/check_commit_subject.sh FILE" >&2
    exit 2
}
subject=$(grep -v '^#' -- "$1" | head -n 1) || true
[[ $subject =~ ^(Merge|Revert|fixup!|squash!)\  ]] && exit
if ((${#subject} > 72)); then
    echo "The commit's subject has ${#subject} characters; 72 are the most: $subject" >&2
    exit 1
fi
if ! [[ $subject =~ ^[A-Za-z][A-Za-z0-9_./-]*:\ [^\ ] ]]; then
    echo "The commit's subject has no area in front, as in 'reward: score answers that time out as wrong': $subject" >&2
    exit 1
fi
