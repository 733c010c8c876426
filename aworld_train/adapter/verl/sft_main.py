"""VeRL's SFT trainer in one process for each rank of this machine, which find each other through a private file.

python -m aworld_train.adapter.verl.sft_main RUN_DIR [--validated]
"""

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from aworld_train import waits
from aworld_train.adapter.verl.compose import CONFIG_FILE
from aworld_train.adapter.verl.worker_setup import RENDEZVOUS_VARIABLE, import_faster

VALIDATED = "--validated"
_PROGRAM = (sys.executable, "-P", "-m", "aworld_train.adapter.verl.sft_main")
_LOOK_SECONDS = 0.2
_GROUP = "sft"


def sft_command(run_dir: Path) -> list[str]:
    return [*_PROGRAM, str(run_dir.resolve())]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("run_dir", type=Path)
    parser.add_argument(VALIDATED, action="store_true", help="the first step has been validated")
    parser.add_argument(
        "--rank", type=int, help="which of the processes this is; default: the one that starts them"
    )
    options = parser.parse_args()
    config = OmegaConf.load(options.run_dir / CONFIG_FILE)
    ranks = int(config.trainer.n_gpus_per_node)
    if options.rank is None and ranks > 1:
        sys.exit(_run_ranks(ranks))
    _train(config, options.run_dir, options.rank or 0, ranks, validate_first=not options.validated)


def _run_ranks(ranks: int) -> int:
    """Run this program once for each rank; the first that fails ends the others. Returns its exit code."""
    command = [*_PROGRAM, *sys.argv[1:]]
    processes = [subprocess.Popen([*command, f"--rank={rank}"]) for rank in range(ranks)]
    try:
        while any(process.poll() is None for process in processes):
            if failed := next((process.returncode for process in processes if process.poll()), 0):
                return failed
            time.sleep(_LOOK_SECONDS)
        return next((process.returncode for process in processes if process.returncode), 0)
    finally:
        for process in processes:
            process.kill()
            process.wait()


def _train(config: Any, run_dir: Path, rank: int, ranks: int, *, validate_first: bool) -> None:
    import_faster()
    for name in ("RANK", "LOCAL_RANK"):
        os.environ[name] = str(rank)
    for name in ("WORLD_SIZE", "LOCAL_WORLD_SIZE"):
        os.environ[name] = str(ranks)
    # VeRL reads these two and connects to neither, as the ranks have a file.
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}
    os.environ["DIST_INIT_METHOD"] = f"file://{os.environ[RENDEZVOUS_VARIABLE]}/{_GROUP}"
    if rank == 0:
        waits.report(run_dir, "trainer")
    waits.begin_part("importing VeRL")
    from verl.utils import distributed
    from verl.utils.device import get_torch_device
    from verl.utils.import_utils import import_external_libs

    from aworld_train.adapter.verl.sft_trainer import TokenRowsTrainer

    # Engines are registered where VeRL's own are there.
    if config.model.external_lib:
        import_external_libs(OmegaConf.to_object(config.model.external_lib))
    get_torch_device().set_device(rank)
    distributed.initialize_global_process_group_ray()
    waits.begin_part("loading the model")
    trainer = TokenRowsTrainer(config, run_dir, validate_first=validate_first)
    waits.begin_part()
    trainer.fit()
    distributed.destroy_global_process_group()


if __name__ == "__main__":
    main()
