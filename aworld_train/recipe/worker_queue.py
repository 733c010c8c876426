"""How long episodes wait for a tool worker, where an environment has fewer than there are episodes at a time."""

from math import ceil

from aworld_train.errors import AworldTrainError
from aworld_train.recipe.schema import CassetteMode, EnvBackend, Recipe


def queue_note(recipe: Recipe, episodes: int | None = None) -> str | None:
    """A sentence on the queue on this machine; None where each episode has a worker at once."""
    section = recipe.env
    if (
        section.started_from is None
        or section.backend is EnvBackend.none
        or section.cassette.mode is CassetteMode.replay
    ):
        return None
    from aworld_train.env.directory import find_directory
    from aworld_train.env.workers import worker_count  # all of env, which most recipes' checks do not need

    episodes = episodes or recipe.trainer.batch_size * recipe.rollout.n
    try:
        directory = find_directory(section.started_from)
        workers = worker_count(directory, section.workers, episodes)
    except AworldTrainError:
        return None  # reported where the environment is started
    before = ceil(episodes / workers) - 1
    if directory.manifest.sessions_per_worker > 1 or not before:
        return None
    longest = before * recipe.agent.episode_timeout
    text = (
        f"{episodes} episodes at a time share {workers} tool workers on this machine: the last wait for {before} "
        f"other{'s' * (before > 1)}, {longest:g} seconds at most (agent.episode_timeout)"
    )
    if longest <= section.queue_timeout:
        return f"{text}."
    return (
        f"{text}, which is longer than env.queue_timeout ({section.queue_timeout:g}): some may end without a worker, "
        "and are then left out. Raise it or env.workers, or give the environment more cores and memory."
    )
