"""One start of VeRL in a folder: configuration written, Ray private, environment watched, the cause of an end named."""

import os
import re
import shutil
import signal
from collections.abc import Callable
from pathlib import Path

import yaml

from aworld_train.adapter.episodes.paths import EPISODES_FILE, REWARD_FILE
from aworld_train.adapter.episodes.record import RUN_DIR_VARIABLE
from aworld_train.adapter.episodes.scoring import reward_plan
from aworld_train.adapter.episodes.settings import episode_settings
from aworld_train.adapter.verl.command import verl_command, verl_environment
from aworld_train.adapter.verl.compose import AGENT_FILE, agent_file, compose
from aworld_train.atomic import write_text
from aworld_train.errors import DiskFull, EnvironmentFailure, TrainingFailure
from aworld_train.recipe.schema import Recipe
from aworld_train.training.environment import HealthWatch, RunEnvironment
from aworld_train.training.private_folder import private_folder
from aworld_train.training.process import run_guarded

_TAIL_BYTES = 200_000
_ERROR_LINE = re.compile(r"^(?:\w+\.)*\w*(?:Error|Exception|Died)\b.*")
_DECORATION = re.compile(r"\x1b\[[0-9;]*m|^\([^)]*pid=[^)]*\)\s?", re.MULTILINE)
_NO_SPACE = "No space left on device"
_MIN_FREE_BYTES = 4 << 20
_PLANNED_RAY_DIR = "/tmp/aworld-train-ray"


def write_plan(
    recipe: Recipe,
    folder: Path,
    *,
    val_only: bool = False,
    val_first: bool = True,
    ray_dir: Path | None = None,
) -> list[str]:
    """Write the composed configuration into ``folder``; returns the exact command that runs it.

    Without ``ray_dir`` it is a plan to look at: every start has a folder of its own for its private Ray.
    """
    folder.mkdir(parents=True, exist_ok=True)
    config = compose(
        recipe, folder, val_only=val_only, val_first=val_first, ray_dir=str(ray_dir or _PLANNED_RAY_DIR)
    )
    write_text(folder / "verl.yaml", yaml.safe_dump(config, sort_keys=False))
    for name, content in (
        (AGENT_FILE, agent_file(recipe, folder)),
        (EPISODES_FILE, episode_settings(recipe)),
        (REWARD_FILE, reward_plan(recipe)),
    ):
        write_text(folder / name, yaml.safe_dump(content, sort_keys=False, allow_unicode=True))
    return verl_command(folder)


def run_verl(
    recipe: Recipe,
    folder: Path,
    environment: RunEnvironment,
    *,
    logger_file: Path,
    watch: Callable[[], str | None],
    worst_cause: Callable[[], str | None],
    val_only: bool = False,
    val_first: bool = True,
) -> None:
    """Run VeRL to its end.

    Args:
        recipe: what to run.
        folder: gets the composed configuration (see ``write_plan``), ``logs/verl.log`` and ``traces/``.
        environment: the tools.
        logger_file: where VeRL appends its metrics.
        watch: called twice a second; a returned text is the reason to stop.
        worst_cause: why most episodes of late could not be used, if any.
        val_only: measure and do not train.
        val_first: validate before the first step.

    Raises:
        EnvironmentFailure: the tools went away and did not come back in time.
        DiskFull: something could not be written.
        TrainingFailure: VeRL failed, or ``watch`` stopped it.
        KeyboardInterrupt: after everything was ended.
    """
    log = folder / "logs" / "verl.log"
    began = log.stat().st_size if log.exists() else 0
    health = HealthWatch(environment, recipe.env.recovery_timeout)
    with private_folder(folder) as private:
        command = write_plan(recipe, folder, val_only=val_only, val_first=val_first, ray_dir=private.ray)
        end = run_guarded(
            command,
            environment={
                **os.environ,
                **verl_environment(recipe, logger_file, private),
                **environment.variables(),
                RUN_DIR_VARIABLE: str(folder),
            },
            cwd=folder,
            log=log,
            watch=lambda: watch() or health.lost(),
            remove=private.path,
        )
    if end.stopped_because is not None:
        raise (EnvironmentFailure if health.silent else TrainingFailure)(end.stopped_because)
    if end.code == 0:
        return
    said = _errors_in(log, began)
    # On a full disk the log cannot say so either.
    if any(_NO_SPACE in line for line in said) or shutil.disk_usage(folder).free < _MIN_FREE_BYTES:
        raise DiskFull(
            f"The disk is full: VeRL could not write below {folder}. Free some space and run it again."
        )
    cause = worst_cause()
    if health.silent or not health.answers():
        raise EnvironmentFailure(
            f"The tool environment stopped answering, and no episode was left to go on with "
            f"({cause or 'it was not used yet'})."
        )
    raise TrainingFailure(
        f"VeRL {_end_in_words(end.code)}: {said[-1] if said else 'its log names no error'}. "
        + (f"Episodes were lost to: {cause}. " if cause else "")
        + f"Its log is {log}."
    )


def _end_in_words(code: int) -> str:
    """An exit code as a person says it; 128 + n stands for signal n."""
    if code == 128 + signal.SIGKILL:
        return "was killed (SIGKILL; the system does that when memory runs out)"
    if code > 128:
        return f"was ended by signal {code - 128}"
    return f"ended with exit code {code}"


def _errors_in(log: Path, began: int) -> list[str]:
    """Lines of the log's end that name an error, in order, without colours and Ray's prefixes."""
    size = log.stat().st_size
    with log.open("rb") as file:
        file.seek(max(began, size - _TAIL_BYTES))
        text = file.read().decode(errors="replace")
    lines = [_DECORATION.sub("", line).strip() for line in text.splitlines()]
    return [line[:500] for line in lines if _ERROR_LINE.match(line) or _NO_SPACE in line]
