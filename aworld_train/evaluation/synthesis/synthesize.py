"""Makes tasks of seeds: explored with the tools, proposed, made harder, verified, solved, and kept or dropped.

Each stage is an evaluation. What a change adds to a task is verified alone, by a question of its own, because the rest
was verified before. The solver is measured on what the build of the candidates leaves.
"""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from aworld_train import recipe as recipes
from aworld_train.atomic import write_text
from aworld_train.dataset import BuildPlan, BuildReport, PlannedSource, carry_out
from aworld_train.dataset.exclusion import read_reference, reference_files
from aworld_train.dataset.output import check_replaceable
from aworld_train.dataset.prompts.gaia import gaia_prompts
from aworld_train.dataset.sources import SourceOptions
from aworld_train.dataset.sources.records import DEFAULT_SCHEMA
from aworld_train.dataset.splits import DEFAULT_SPLITS
from aworld_train.env.attachments import MOUNT_POINT
from aworld_train.env.containers import engine_answers
from aworld_train.errors import DatasetError, UsageError
from aworld_train.evaluation.plan import WITHOUT_TOOLS, WITHOUT_TRAINING
from aworld_train.evaluation.results import Evaluation
from aworld_train.evaluation.synthesis.prompts import change_prompt, explore_prompt
from aworld_train.evaluation.synthesis.stage import Stages, stage_folder, texts_by_task
from aworld_train.evaluation.synthesis.tasks import (
    Seed,
    SynthesizedTask,
    change_for,
    proposal_id,
    read_change,
    read_proposal,
    read_seeds,
)
from aworld_train.evaluation.synthesis.verdicts import (
    Bounds,
    DropReason,
    Solved,
    solved_of,
    verdict,
)
from aworld_train.recipe.interpolation import escape
from aworld_train.recipe.schema import EnvBackend, Recipe
from aworld_train.recipe.tree import merge
from aworld_train.rollout.chat_client import EndpointAddress
from aworld_train.training.progress import Progress
from aworld_train.training.run import terminate_as_interrupt

PREFIX = "synth-"
_FIRST_STAGE = "explore"
_SAMPLING = 1.0  # the temperature of attempts where the recipe has greedy ones, which are all alike
_SPLIT = "tasks"
_UNSOLVED = Solved(0, 0, False)
_MAKING = {
    "agent": {"command": [], "builder": None, "aworld": None, "loop": None, "environment": {}},
    "eval": {"attempts": 1},
}
"""What the recipe is changed by where tasks are made: the agent is the built-in one."""
_OWN_SCORERS = {"scorer": None, "function": None, "answer_schema": None}
"""Of the section ``reward``, so that each row has the scorer that it names."""


@dataclass(frozen=True)
class SynthesisPlan:
    """A synthesis: ``per_seed`` proposals about each seed, made harder ``rounds`` times and solved ``attempts`` times.

    ``system`` is the system prompt of every task, None for GAIA's. ``solver`` is the directory of a model that solves
    in place of the endpoint's. ``folder`` is where the folders of the stages are, whose names begin with its own.
    """

    recipe: recipes.loading.Source
    overrides: Sequence[str]
    seeds: Path
    out: Path
    endpoint: EndpointAddress
    folder: Path
    per_seed: int
    rounds: int
    attempts: int
    bounds: Bounds
    scorer: str
    system: str | None
    against: Sequence[Path]
    solver: Path | None


@dataclass(frozen=True)
class SynthesisReport:
    """What became of the ``proposals``: how many were ``kept``, and how many ``dropped`` for each reason."""

    proposals: int
    kept: int
    dropped: Mapping[DropReason, int]
    changes: Mapping[str, int]
    solver_episodes: Path
    dataset: BuildReport

    def to_json(self) -> dict[str, Any]:
        return {
            "proposals": self.proposals,
            "kept": self.kept,
            "dropped": {reason.name: count for reason, count in self.dropped.items()},
            "changes": dict(self.changes),
            "solver_episodes": str(self.solver_episodes),
            "dataset": self.dataset.to_json(),
        }


def synthesize(plan: SynthesisPlan, *, resume: bool, progress: Progress) -> SynthesisReport:
    """Make the dataset, or what is missing of it where it was cut off; DatasetError if no task is kept."""
    plan.bounds.check()
    _check_begun(plan, resume)
    _check_build(plan)
    loaded = recipes.read(plan.recipe, [*plan.overrides, *WITHOUT_TRAINING])
    common: dict[str, Any] = {"reward": _OWN_SCORERS, "store": {"keep": "all"}}
    if plan.seeds.is_dir() and loaded.recipe.env.started_from is not None:
        common["env"] = {"data": escape(str(plan.seeds.resolve()))}
    recipe = recipes.read(merge(loaded.unresolved, common))
    with terminate_as_interrupt(), Stages(recipe, plan.endpoint, plan.folder, progress) as stages:
        return _Synthesis(plan, recipe.recipe, stages).run()


def _check_begun(plan: SynthesisPlan, resume: bool) -> None:
    first = stage_folder(plan.folder, _FIRST_STAGE)
    if resume and not first.exists():
        raise UsageError(f"No synthesis to resume in {first}. --name and --runs say which one it is.")
    if first.exists() and not resume:
        raise UsageError(f"{first} is there already: continue with --resume, or choose another --name.")


def _check_build(plan: SynthesisPlan) -> None:
    """Find what the builds of the candidates and of the dataset would refuse, before a model is asked."""
    options = SourceOptions(files=(str(plan.seeds),), scorer=plan.scorer)
    BuildPlan([PlannedSource("jsonl", options)], plan.out).check()
    check_replaceable(plan.out)
    read_reference(reference_files(plan.against), 0)


class _Synthesis:
    def __init__(self, plan: SynthesisPlan, recipe: Recipe, stages: Stages):
        self._plan, self._recipe, self._stages = plan, recipe, stages
        self._system = gaia_prompts(DEFAULT_SCHEMA)[0] if plan.system is None else plan.system
        self._dropped = Counter[DropReason]()
        self._changes = Counter[str](proposed=0, verified=0)

    def run(self) -> SynthesisReport:
        plan = self._plan
        seeds = read_seeds(plan.seeds, self._tool_folder())
        tasks = self._proposed(seeds)
        for number in range(1, plan.rounds + 1):
            tasks = self._harder(tasks, number)
        tasks = self._kept(self._distinct(tasks))
        proposals = len(seeds) * plan.per_seed
        dropped = {reason: self._dropped[reason] for reason in DropReason if self._dropped[reason]}
        if not tasks:
            lines = "; ".join(f"{reason}: {count}" for reason, count in dropped.items())
            raise DatasetError(
                f"None of {proposals} proposed tasks is kept ({lines}). {plan.folder}-solve has the attempts; give "
                "other bounds with --resume, or begin again with more seeds."
            )
        dataset = self._build("kept", tasks, plan.out, DEFAULT_SPLITS)
        return SynthesisReport(
            proposals, len(tasks), dropped, self._changes, stage_folder(plan.folder, "solve"), dataset
        )

    def _tool_folder(self) -> str:
        """Where the tools find a folder of seeds."""
        backend = self._recipe.env.backend
        if backend is EnvBackend.process or (backend is EnvBackend.auto and not engine_answers()):
            return str(self._plan.seeds.resolve())
        return MOUNT_POINT

    def _proposed(self, seeds: Sequence[Seed]) -> list[SynthesizedTask]:
        count = self._plan.per_seed
        numbered = {
            proposal_id(seed, number): (seed, number) for seed in seeds for number in range(1, count + 1)
        }
        rows = [
            _making_row(id, explore_prompt(seed.text, number, count), seed.attachments)
            for id, (seed, number) in numbered.items()
        ]
        written = self._stages.run(_FIRST_STAGE, rows, _MAKING, texts_by_task)
        tasks = []
        for id, (seed, _) in numbered.items():
            text, calls = written.get(id, ("", 0))
            task = read_proposal(text, id, seed.attachments)
            if task is not None and calls:
                tasks.append(task)
            elif id not in written:
                self._dropped[DropReason.failed] += 1
            else:
                self._dropped[DropReason.no_tool if task else DropReason.no_proposal] += 1
        return tasks

    def _harder(self, tasks: Sequence[SynthesizedTask], number: int) -> list[SynthesizedTask]:
        """The tasks with one change each, where what it added was found again by a solver."""
        changes = {task.id: change_for(task, number) for task in tasks}
        rows = [
            _making_row(
                task.id, change_prompt(changes[task.id], task.question, task.answer), task.attachments
            )
            for task in tasks
        ]
        written = self._stages.run(f"change-{number}", rows, _MAKING, texts_by_task)
        read = [read_change(written.get(task.id, [""])[0], task, changes[task.id]) for task in tasks]
        changed = {task.id: task for task in read if task is not None}
        questions = [
            task.row(self._plan.scorer, self._system)
            | {"query": task.added[0], "answer": task.added[1], "level": "", "tags": []}
            for task in changed.values()
        ]
        verified = self._solved(f"verify-{number}", questions, _MAKING)
        found = {id for id, solved in verified.items() if solved.right}
        self._changes.update(proposed=len(changed), verified=len(found & changed.keys()))
        return [changed[task.id] if task.id in found else task for task in tasks]

    def _distinct(self, tasks: Sequence[SynthesizedTask]) -> list[SynthesizedTask]:
        """The tasks that a build leaves: not two that are nearly the same, and none of an evaluation."""
        import pyarrow.parquet as pq

        if not tasks:
            return []
        folder = stage_folder(self._plan.folder, "candidates")
        self._build("candidates", tasks, folder, {_SPLIT: 1.0})
        info = pq.read_table(folder / f"{_SPLIT}.parquet", columns=["extra_info"])["extra_info"]
        left = {row["id"] for row in info.to_pylist()}
        self._dropped[DropReason.left_out] += sum(task.id not in left for task in tasks)
        return [task for task in tasks if task.id in left]

    def _kept(self, tasks: Sequence[SynthesizedTask]) -> list[SynthesizedTask]:
        bounds, attempts = self._plan.bounds, self._plan.attempts
        sampling = {"attempts": attempts, "temperature": self._recipe.eval.temperature or _SAMPLING}
        rows = [task.row(self._plan.scorer, self._system) for task in tasks]
        with_tools = self._solved("solve", rows, {"eval": sampling}, self._plan.solver)
        # Whatever the bounds are, so that others can be tried without asking again.
        rows = [row for row in rows if with_tools.get(row["id"], _UNSOLVED).may_be_kept]
        without = self._solved(
            "without-tools", rows, {"eval": sampling, "env": WITHOUT_TOOLS}, self._plan.solver
        )
        kept = []
        for task in tasks:
            reason = verdict(with_tools.get(task.id, _UNSOLVED), without.get(task.id, _UNSOLVED), bounds)
            if reason is None:
                kept.append(task)
            else:
                self._dropped[reason] += 1
        return kept

    def _solved(
        self,
        stage: str,
        rows: Sequence[Mapping[str, Any]],
        changes: Mapping[str, Any],
        solver: Path | None = None,
    ) -> dict[str, Solved]:
        def read(evaluation: Evaluation) -> dict[str, Any]:
            return {name: asdict(solved) for name, solved in solved_of(evaluation).items()}

        results = self._stages.run(stage, rows, changes, read, checkpoint=solver)
        return {name: Solved(**solved) for name, solved in results.items()}

    def _build(
        self, name: str, tasks: Sequence[SynthesizedTask], out: Path, splits: Mapping[str, float]
    ) -> BuildReport:
        file = stage_folder(self._plan.folder, f"{name}.jsonl")
        rows = [task.row(self._plan.scorer, self._system) for task in tasks]
        write_text(file, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))
        source = PlannedSource("jsonl", SourceOptions(files=(str(file),)))
        return carry_out(
            BuildPlan([source], out, splits=dict(splits), dedupe=True, against=list(self._plan.against))
        )


def _making_row(id: str, prompt: str, attachments: Sequence[str]) -> dict[str, Any]:
    """A row whose answer is a proposal; its score says whether one is there."""
    return {
        "id": id,
        "query": prompt,
        "answer": "question",
        "scorer": "contains",
        "attachments": list(attachments),
    }
