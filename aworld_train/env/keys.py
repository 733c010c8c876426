"""API keys for tool servers: read from a file when an environment starts, passed to the servers that declare them."""

from collections.abc import Mapping
from pathlib import Path

from aworld_train.env.backend import ProgressReporter
from aworld_train.errors import UsageError, nearest
from aworld_train.serving.manifest import Manifest


def read_keys(manifest: Manifest, env_file: Path | None) -> dict[str, str]:
    """The variables in the file that some server declares, ``${OTHER}`` in values resolved; others are left alone.

    Raises:
        UsageError: The file cannot be read.
    """
    if env_file is None:
        return {}
    from dotenv import dotenv_values

    if not env_file.is_file():
        raise UsageError(f"There is no file {env_file} (--env-file).")
    try:
        values = dotenv_values(env_file)
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{env_file} (--env-file) cannot be read: {error}.") from error
    return {name: value for name, value in values.items() if value and name in manifest.key_names()}


def choose_servers(
    manifest: Manifest, names: tuple[str, ...], keys: Mapping[str, str], report_progress: ProgressReporter
) -> tuple[str, ...]:
    """The servers to run: those of ``names``, or all that have their keys.

    Raises:
        UsageError: A named one is unknown or lacks a key, or no server has its keys.
    """
    missing = manifest.missing_keys(keys)
    check_names(manifest, names)
    for name in names:
        if name in missing:
            raise UsageError(
                f"The server {name!r} needs {', '.join(missing[name])}: put it into the --env-file."
            )
    if names:
        return names
    for name, lacking in missing.items():
        report_progress(f"{name} is off: {', '.join(lacking)} not set (--env-file).")
    usable = tuple(name for name in manifest.servers if name not in missing)
    if not usable:
        raise UsageError(f"No server of {manifest.name} has the keys it needs; give them with --env-file.")
    return usable


def check_names(manifest: Manifest, names: tuple[str, ...]) -> None:
    """Check that all of them are servers of the environment.

    Raises:
        UsageError: One is not.
    """
    for name in names:
        if name not in manifest.servers:
            guess = nearest(name, list(manifest.servers))
            raise UsageError(
                f"{manifest.name} has no server {name!r}"
                + (f"; did you mean {guess!r}?" if guess else ".")
                + f" It has: {', '.join(manifest.servers)}."
            )
