"""How VeRL is started: the exact command, and the environment variables it reads."""

import os
import secrets
import sys
from pathlib import Path

from aworld_train.adapter.verl.compose import on_cpu
from aworld_train.adapter.verl.cpu import PLATFORM_MODULE
from aworld_train.recipe.schema import Recipe


def verl_command(run_dir: Path) -> list[str]:
    """VeRL's ``main_ppo`` (see ``main``) on the run folder's ``verl.yaml``; Hydra writes nothing of its own."""
    return [
        sys.executable,
        "-m",
        "aworld_train.adapter.verl.main",
        "--config-path",
        str(run_dir.resolve()),
        "--config-name",
        "verl",
        "hydra.run.dir=.",
        "hydra.output_subdir=null",
        "hydra/job_logging=none",
        "hydra/hydra_logging=none",
    ]


def verl_environment(recipe: Recipe, logger_file: Path, ray_dir: Path) -> dict[str, str]:
    """Variables for VeRL and the private Ray, to be laid over the process's own."""
    token = ray_dir / "token"
    token.touch(mode=0o600)
    token.write_text(secrets.token_hex(32))
    scratch = ray_dir / "tmp"
    scratch.mkdir(exist_ok=True)
    variables = {
        # VeRL leaves lock files in the directory for temporary files; this one goes with the run.
        "TMPDIR": str(scratch),
        # Ray starts its workers with the `python` of the PATH.
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}",
        # Modules beside the user, a reward function's for instance, are found from the run folder too.
        "PYTHONPATH": os.pathsep.join(filter(None, [str(Path.cwd()), os.environ.get("PYTHONPATH")])),
        "PYTHONUNBUFFERED": "1",
        "VERL_FILE_LOGGER_PATH": str(logger_file),
        "TOKENIZERS_PARALLELISM": "false",
        "RAY_USAGE_STATS_ENABLED": "0",
        # Without these Ray would write a token of its own into the home directory.
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN_PATH": str(token),
    }
    if on_cpu(recipe):
        variables |= {"VERL_PLATFORM": "cpu", "VERL_USE_EXTERNAL_MODULES": PLATFORM_MODULE}
    if recipe.model.path and Path(recipe.model.path).is_dir():
        variables |= {"HF_HUB_OFFLINE": "1"}
    return variables
