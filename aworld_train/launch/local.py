"""The launcher ``local``: the run is a child of this process."""

import platform
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import yaml

from aworld_train.errors import TrainingFailure, UsageError
from aworld_train.launch.base import DryRun, JobState, JobStatus, LaunchOptions
from aworld_train.launch.log_tail import follow_log
from aworld_train.launch.slurm_variables import unused_resources
from aworld_train.training.framework_processor import FrameworkProcessor
from aworld_train.training.placement import Placement
from aworld_train.training.run_files import holder_of, is_in_use
from aworld_train.training.summary import RunSummary

_STOP_SECONDS = 60.0
_POLL_SECONDS = 0.2


class LocalLauncher:
    """The run's process is found by the lock of the run folder."""

    name = "local"

    def launch(self, processor: FrameworkProcessor, options: LaunchOptions) -> RunSummary:
        if options.detach:
            raise UsageError(
                "A run on this machine ends with its command, so it cannot be detached. Leave --detach out (nohup "
                "keeps the command going without a terminal), or name a launcher with --launcher."
            )
        placement = Placement(remark=unused_resources(processor.checked.recipe))
        return processor.train(resume=options.resume, quiet=options.quiet, placement=placement)

    def dry_run(self, processor: FrameworkProcessor, folder: Path) -> DryRun:
        plan = processor.plan_in(folder)
        return DryRun(plan.files, plan.config, plan.command)

    def status(self, run_dir: Path) -> JobStatus:
        if not is_in_use(run_dir):
            return JobStatus(JobState.ended, "no process works on it")
        holder = holder_of(run_dir)
        where = f" {holder.process.pid} on {holder.host}" if holder else ""
        return JobStatus(JobState.running, f"process{where}")

    def stop(self, run_dir: Path) -> None:
        """The run's process gets SIGTERM, which ends it as Ctrl-C does."""
        if not is_in_use(run_dir):
            raise UsageError(f"No process works on the run in {run_dir}.")
        holder = holder_of(run_dir)
        if holder is None or holder.host != platform.node() or holder.process.is_elsewhere:
            where = f"process {holder.process.pid} on {holder.host}" if holder else "another process"
            raise UsageError(
                f"The run in {run_dir} belongs to {where}; end it there, with Ctrl-C or SIGTERM."
            )
        process = holder.process.find()
        if process is not None:
            with suppress(psutil.NoSuchProcess):
                process.terminate()
        deadline = time.monotonic() + _STOP_SECONDS
        while is_in_use(run_dir):
            if time.monotonic() > deadline:
                raise TrainingFailure(
                    f"Process {holder.process.pid} got SIGTERM and still works on the run in {run_dir} after "
                    f"{_STOP_SECONDS:g} seconds."
                )
            time.sleep(_POLL_SECONDS)

    def logs(self, run_dir: Path, *, follow: bool) -> Iterator[str]:
        recipe = yaml.safe_load((run_dir / "recipe.yaml").read_text(encoding="utf-8"))
        framework = (recipe.get("trainer") or {}).get("framework", "verl")
        log = run_dir / "logs" / f"{framework}.log"
        if not log.is_file():
            raise UsageError(f"The run in {run_dir} has no log yet: there is no {log}.")
        yield from follow_log(
            lambda: log.read_text(encoding="utf-8", errors="replace"),
            lambda: not is_in_use(run_dir),
            follow=follow,
        )
