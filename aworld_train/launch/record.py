"""``launch.json`` in a run folder: which launcher started the run, and which job it is. It holds no secret."""

import json
import time
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path

from aworld_train.atomic import write_text
from aworld_train.errors import UsageError
from aworld_train.training.run_files import LAUNCH_FOLDER, LAUNCH_RECORD


@dataclass(frozen=True)
class LaunchRecord:
    """One launch of a run; ``address`` has no credentials, ``log`` is relative to the run folder."""

    launcher: str
    job: str
    address: str = ""
    log: str = ""
    submitted: str = field(default_factory=lambda: time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()))


def record_file(run_dir: Path) -> Path:
    return run_dir / LAUNCH_RECORD


def launch_folder(run_dir: Path) -> Path:
    """The folder, made if need be, for the files of a launch: rendered scripts, the job's recipe and log."""
    folder = run_dir / LAUNCH_FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def write_record(run_dir: Path, record: LaunchRecord) -> None:
    run_dir.mkdir(parents=True, exist_ok=True)
    write_text(record_file(run_dir), json.dumps(asdict(record), indent=2) + "\n")


def read_record(run_dir: Path) -> LaunchRecord | None:
    file = record_file(run_dir)
    try:
        content = json.loads(file.read_text())
        return LaunchRecord(**{key.name: content[key.name] for key in fields(LaunchRecord)})
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError) as error:
        raise UsageError(
            f"{file} cannot be read ({error}), so the job of this run is not known. Remove the file to start the run "
            "again."
        ) from error


def submitted_record(run_dir: Path) -> LaunchRecord:
    record = read_record(run_dir)
    if record is None:
        raise UsageError(f"{run_dir} has no launch.json: its run was not submitted to a cluster.")
    return record
