"""How far the engine's probabilities are from the trainer's here: ``aworld-train doctor RECIPE --engine``."""

import asyncio
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from aworld_train import temporary
from aworld_train.adapter.base import LoadedModel, framework_of
from aworld_train.dataset.check import open_parquet, read_batches
from aworld_train.dataset.schema import check_schema
from aworld_train.doctor.finding import Finding, fail, ok, warn
from aworld_train.episode.message import Message
from aworld_train.errors import AworldTrainError, UsageError
from aworld_train.masking import mask
from aworld_train.model.check import check_model
from aworld_train.recipe.device import sampling_type
from aworld_train.recipe.schema import Recipe, RolloutCorrection, SamplingType
from aworld_train.rollout.model import SampledTokens, SamplingParams
from aworld_train.rollout.outcome import EpisodeFailure
from aworld_train.training.alarms import MAX_EXACT_DIFFERENCE, MAX_MEAN_DIFFERENCE

_AREA = "engine"
_MAX_PROMPTS = 32
_MAX_TOKENS = 64  # of each answer


@dataclass(frozen=True)
class Differences:
    tokens: int
    mean: float
    highest: float


def check_exactness(recipe: Recipe) -> Finding:
    try:
        with temporary.folder_of("doctor") as folder:
            finding = finding_of(recipe, measure(recipe, folder))
    except (AworldTrainError, EpisodeFailure) as error:
        finding = fail(
            f"The engine's probabilities were not compared: {str(error).rstrip('.')}.",
            "Mend it: a run needs the same engine and model.",
        )
    except Exception as error:  # of any engine's library; all that was examined is still to be shown
        reason = f"{type(error).__name__}: {error}"
        finding = fail(f"The engine or the trainer's model failed: {reason}.", "Look at it by hand.")
    return Finding(finding.status, mask(finding.what), mask(finding.remedy), _AREA)


def finding_of(recipe: Recipe, differences: Differences) -> Finding:
    engine, kind = recipe.rollout.engine.value, sampling_type(recipe)
    what = (
        f"{engine} in {kind.value}: the probabilities of {differences.tokens} sampled tokens differ from the trainer's "
        f"in float32 by {differences.mean:.1e} on average and {differences.highest:.1e} at most"
    )
    if not math.isfinite(differences.highest):
        return fail(f"{what}: some are no numbers.", "Take another engine, or rollout.dtype=float32.")
    if kind is SamplingType.float32:
        if differences.highest > MAX_EXACT_DIFFERENCE:
            return warn(
                f"{what}; {MAX_EXACT_DIFFERENCE:g} is more than rounding.",
                "The engine computes another model than the trainer: take another version of it or the other engine. "
                "algorithm.rollout_correction=token weighs each token by the difference.",
            )
        return ok(f"{what}, which is rounding.")
    if differences.mean > MAX_MEAN_DIFFERENCE:
        corrected = recipe.algorithm.rollout_correction is not RolloutCorrection.off
        return warn(
            f"{what}; {MAX_MEAN_DIFFERENCE:g} on average is much.",
            "Set rollout.dtype=float32: the correction that the recipe has is for less."
            if corrected
            else "Set algorithm.rollout_correction=token, which weighs each token by it, or rollout.dtype=float32.",
        )
    return ok(f"{what}; algorithm.rollout_correction=token corrects for what bfloat16 rounds.")


def measure(recipe: Recipe, folder: Path) -> Differences:
    check_model(recipe.model.location)
    framework = framework_of(recipe)
    tasks = _first_tasks(recipe)
    samples = asyncio.run(_sample(recipe, framework.load_model(recipe, folder, model_url=None), tasks))
    trained = framework.trained_logprobs(
        recipe, folder, [(prompt, sampled.tokens) for prompt, sampled in samples]
    )
    return differences_of([sampled.logprobs for _, sampled in samples], trained)


def differences_of(sampled: Sequence[Sequence[float]], trained: Sequence[Sequence[float]]) -> Differences:
    differences = np.abs(np.exp(np.concatenate(sampled)) - np.exp(np.concatenate(trained)))
    return Differences(len(differences), float(differences.mean()), float(differences.max()))


def _first_tasks(recipe: Recipe) -> list[list[Message]]:
    files = recipe.dataset.val_files or recipe.dataset.train_files
    if not files:
        raise UsageError("the recipe has no dataset whose tasks could be answered: set dataset.val")
    with open_parquet(Path(files[0])) as file:
        check_schema(file.schema_arrow, str(files[0]))
        batch = next(iter(read_batches(file, Path(files[0]), ["prompt"])))
    rows = batch.slice(0, _MAX_PROMPTS).to_pylist()
    return [[Message.read(message) for message in row["prompt"]] for row in rows]


async def _sample(
    recipe: Recipe, model: LoadedModel, tasks: Sequence[Sequence[Message]]
) -> list[tuple[list[int], SampledTokens]]:
    """The prompts of tasks, as far as they fit, without tools, and the engine's answers; the model is closed."""
    rollout = recipe.rollout
    params = SamplingParams(rollout.temperature, rollout.top_p, rollout.top_k)
    max_tokens = min(_MAX_TOKENS, rollout.max_response_tokens)

    async def answer(number: int, prompt: list[int]) -> tuple[list[int], SampledTokens]:
        return prompt, await model.for_episode().generate(f"doctor-{number}", prompt, params, max_tokens)

    try:
        template = model.for_episode().template
        prompts = [template.initial(messages, []) for messages in tasks]
        fitting = [prompt for prompt in prompts if len(prompt) <= recipe.dataset.max_prompt_tokens]
        if not fitting:
            raise UsageError("none of the first tasks fits into dataset.max_prompt_tokens")
        return await asyncio.gather(*(answer(number, prompt) for number, prompt in enumerate(fitting)))
    finally:
        await model.close()
