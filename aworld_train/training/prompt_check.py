"""Checks, while a run starts, whether its first prompts fit and how its chat template continues turns."""

import json
import subprocess
from collections.abc import Callable
from typing import Self

from aworld_train import module_process
from aworld_train.adapter.base import RunPlan
from aworld_train.adapter.episodes import first_prompt
from aworld_train.adapter.episodes.first_prompt import FirstPrompts
from aworld_train.adapter.episodes.paths import EPISODES_FILE
from aworld_train.model.files import local_folder
from aworld_train.recipe.schema import AGENT_KINDS, Recipe
from aworld_train.training.environment import RunEnvironment


class PromptCheck:
    """A process that measures the first prompts of a run whose agent is the built-in loop, and tries its template."""

    def __init__(
        self,
        recipe: Recipe,
        plan: RunPlan,
        environment: RunEnvironment,
        note: Callable[[str], None],
    ):
        self._limit = recipe.dataset.max_prompt_tokens
        self._note = note
        self._process: subprocess.Popen[str] | None = None
        model = local_folder(recipe.model.location)
        if model is None or not recipe.plays_episodes:
            return
        settings = plan.files.get(EPISODES_FILE)
        if any(getattr(recipe.agent, kind) for kind in AGENT_KINDS):
            settings = None
        datasets = [*recipe.dataset.train_files, *recipe.dataset.val_files]
        question = [settings, str(model), dict(plan.template_options), datasets]
        self._process = module_process.start(first_prompt.__name__, question, environment.variables())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None

    def reason_to_stop(self) -> str | None:
        """Why no episode can begin, once known; None before, if some can, and if it cannot be measured."""
        if self._process is None or self._process.poll() is None:
            return None
        output, _ = self._process.communicate()
        self._process = None
        found, _, turns = output.partition("\n")
        prompts = FirstPrompts(**json.loads(found)) if found not in ("", "null") else None
        if prompts and (fault := prompts.fault(self._limit)):
            return fault
        if prompts and (remark := prompts.remark(self._limit)):
            self._note(remark)
        if turns:
            self._note(turns.strip())
        return None
