"""The launcher ``local``: the run is a child of this process."""

from collections.abc import Iterator
from pathlib import Path

from aworld_train.errors import UsageError
from aworld_train.launch.base import DryRun, JobStatus, LaunchOptions
from aworld_train.launch.unused import unused_resources
from aworld_train.training.framework_processor import FrameworkProcessor
from aworld_train.training.placement import Placement
from aworld_train.training.summary import RunSummary


class LocalLauncher:
    """Implements ``Launcher``. There is no job, so nothing can be asked about it from another process."""

    name = "local"

    def launch(self, processor: FrameworkProcessor, options: LaunchOptions) -> RunSummary:
        """As ``Launcher.launch``.

        Raises:
            UsageError: The run is to be detached, which only a job can be.
        """
        if options.detach:
            raise UsageError(
                "A run on this machine ends with its command, so it cannot be detached. Leave --detach out (nohup "
                "keeps the command going without a terminal), or name a launcher with --launcher."
            )
        placement = Placement(remark=unused_resources(processor.checked.recipe))
        return processor.train(resume=options.resume, quiet=options.quiet, placement=placement)

    def dry_run(self, processor: FrameworkProcessor) -> DryRun:
        """As ``Launcher.dry_run``."""
        run_dir, plan = processor.write_plan()
        return DryRun(run_dir / plan.config, plan.command)

    def status(self, run_dir: Path) -> JobStatus:
        """As ``Launcher.status``."""
        raise _no_job(run_dir)

    def stop(self, run_dir: Path) -> None:
        """As ``Launcher.stop``."""
        raise _no_job(run_dir)

    def logs(self, run_dir: Path, *, follow: bool) -> Iterator[str]:
        """As ``Launcher.logs``."""
        raise _no_job(run_dir)


def _no_job(run_dir: Path) -> UsageError:
    return UsageError(
        f"The run in {run_dir} is no scheduler's job: it belongs to the command that started it. Its state is in "
        "summary.json and its log below logs/; Ctrl-C, or SIGTERM to that command, ends it."
    )
