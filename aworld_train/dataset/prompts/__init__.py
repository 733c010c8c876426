"""The texts of prompts, as files of the package."""

from collections.abc import Sequence
from importlib.resources import files


def prompt_text(name: str) -> str:
    return files(__name__).joinpath(name).read_text(encoding="utf-8").strip()


def with_attachments(question: str, paths: Sequence[str]) -> str:
    """The question, followed by the paths of its files that it does not contain."""
    if not paths:
        return question
    missing = [path for path in paths if path not in question]
    return f"{question}\n\n{_ATTACHMENTS}\n" + "\n".join(missing) if missing else question


_ATTACHMENTS = prompt_text("attachments.txt")
