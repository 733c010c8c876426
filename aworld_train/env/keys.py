"""API keys for tool servers: read from a file when an environment starts, passed to the servers that declare them.

The file may be shared with other programs, so a name that no server declares is reported with the nearest one.
"""

import re
from collections.abc import Mapping
from pathlib import Path

from aworld_train.env.backend import ProgressReporter, Remark
from aworld_train.env.env_file import EnvFile, read_env_file
from aworld_train.errors import UsageError, nearest, suggestion
from aworld_train.serving.manifest import Manifest

# What may be shown: a stray line of a secret, such as `dGhlIHNlY3JldA==`, is an assignment too.
_NAME = re.compile(r"[A-Z][A-Z0-9_]{0,63}")
_SIMILAR = 0.8  # JINA_API_KEY is not a misspelt OPENAI_API_KEY, but shares its ending


def read_keys(
    manifest: Manifest, env_file: Path | None, report_progress: ProgressReporter = lambda _: None
) -> dict[str, str]:
    """The variables that servers declare, from the file, ``${OTHER}`` in values resolved, shared ones filled in."""
    if env_file is None:
        return {}
    file = read_env_file(env_file)
    known = manifest.key_names() | manifest.shared_key_names()
    for line in _unused(file, known, manifest.name):
        report_progress(Remark(line))
    return manifest.with_shared({name: file.value(name) for name in file.assignments if name in known})


def _unused(file: EnvFile, known: set[str], environment: str) -> list[str]:
    lines, others = [], []
    for number in file.lines_without_value:
        lines.append(f"{file.path}:{number} is not used: it has no `=`.")
    for name in sorted(set(file.assignments) - known - file.references()):
        number = file.assignments[name].line
        is_name = bool(_NAME.fullmatch(name))
        if guess := nearest(name.upper(), known, cutoff=_SIMILAR):
            key = f"the key {name}" if is_name else "such a key"
            lines.append(
                f"{file.path}:{number}: no server of {environment} has {key}. Did you mean {guess!r}?"
            )
        else:
            others.append(name if is_name else f"line {number}")
    if others:
        lines.append(f"{file.path}: no server of {environment} uses {', '.join(others)}.")
    return lines


def choose_servers(
    manifest: Manifest, names: tuple[str, ...], keys: Mapping[str, str], report_progress: ProgressReporter
) -> tuple[str, ...]:
    missing = manifest.missing_keys(keys)
    check_names(manifest, names)
    for name in names:
        if name in missing:
            raise UsageError(
                f"The server {name!r} needs {_lacking(manifest, missing[name])}: put it into the --env-file."
            )
    if names:
        return names
    for name, lacking in missing.items():
        report_progress(Remark(f"{name} is off: {_lacking(manifest, lacking)} not set (--env-file)."))
    usable = tuple(name for name in manifest.servers if name not in missing)
    if not usable:
        raise UsageError(f"No server of {manifest.name} has the keys it needs; give them with --env-file.")
    return usable


def _lacking(manifest: Manifest, keys: list[str]) -> str:
    stand_ins = manifest.stand_ins(keys)
    return ", ".join(keys) + (f" (or {', '.join(stand_ins)})" if stand_ins else "")


def check_names(manifest: Manifest, names: tuple[str, ...]) -> None:
    for name in names:
        if name not in manifest.servers:
            raise UsageError(
                f"{manifest.name} has no server {name!r}.{suggestion(name, manifest.servers)} It has: "
                f"{', '.join(manifest.servers)}."
            )
