"""Makes the tiny model that comes with the package: it imitates episodes in which it calls the calculator, or guesses.

    python scripts/tiny_model.py --out models/made              # a few minutes; --seed 1 makes another

The steps are those of any fine-tuning before reinforcement learning, by the command line: conversations, their token
rows (``dataset rows``), ``recipes/quickstart-sft`` and ``eval``. Products are mostly computed with the tool, and all
else is mostly guessed. Greedily the model then solves about the products; at temperature 1 it answers both kinds both
ways, from which reinforcement learning can find out when to use the tool. A model whose measurements are outside the
gate is not written; the folder of one that is gets ``tiny.json``.
"""

import argparse
import json
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow.parquet as pq
from small_models import make_model, read_template, render, save_model, train_tokenizer

from aworld_train.model.tiny import MADE_BY, MARKER

RECIPES = Path(__file__).resolve().parents[1] / "recipes"
LAYERS = 2
STEPS = 400
SETTINGS = (
    *(f"trainer.{key}" for key in (f"steps={STEPS}", f"save_every={STEPS}", "batch_size=24", "lr=3e-3")),
    *("trainer.warmup_steps=20", f"trainer.val_every={STEPS}", "verl.optim.lr_scheduler_type=cosine"),
)
GUESSED, GUESSED_PRODUCTS = 0.8, 0.2
"""Shares of the episodes without a tool call; a product is a task with a ``*``."""
MIN_ACCURACY, MAX_ACCURACY = 0.3, 0.52
"""Greedy accuracy: high enough that sampled groups have right answers, and low enough that training can raise it by far
more than 20 points."""
MIN_MIXED_GROUPS, MIN_SAMPLED_ACCURACY = 0.65, 0.3
GROUP, GROUP_TASKS = 8, 64
ISOLATED = r"[0-9.+\-*/()\n]"
"""Characters that never merge with a neighbour. The line break is one of them because verl's continuous-token
builder for Qwen puts exactly one newline token after ``<|im_end|>`` (``utils/tokenizer/continuous_token.py``)."""

CALCULATOR: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "calculator",
        "description": "Evaluate an arithmetic expression.",
        "parameters": {
            "type": "object",
            "properties": {"expression": {"type": "string"}},
            "required": ["expression"],
        },
    },
}
"""The tool as the prompt shows it, the one that ``docker/calculator-mcp-server`` offers."""


class ArithmeticTask(NamedTuple):
    expression: str
    value: str


def conversation(task: ArithmeticTask, *, with_tool: bool) -> list[dict[str, Any]]:
    user_message = {"role": "user", "content": f"What is {task.expression}?"}
    answer_message = {"role": "assistant", "content": f"<answer>{task.value}</answer>"}
    if not with_tool:
        return [user_message, answer_message]
    function = {"name": "calculator", "arguments": {"expression": task.expression}}
    call = {"role": "assistant", "content": "", "tool_calls": [{"type": "function", "function": function}]}
    return [user_message, call, {"role": "tool", "content": task.value}, answer_message]


def make_tokenizer() -> Any:
    """One token for each phrase that every episode repeats, one per digit, bytes for the rest; always the same."""
    template = read_template()
    text = render(conversation(ArithmeticTask("1+1", "2"), with_tool=True), template, [CALCULATOR])
    return train_tokenizer([text], ISOLATED, template)


def transcripts(tasks: Sequence[ArithmeticTask], seed: int) -> list[dict[str, Any]]:
    """A conversation for each task, in the form of ``runs export --format messages``."""
    rng = random.Random(seed)
    return [
        {
            "messages": conversation(
                task, with_tool=rng.random() >= (GUESSED_PRODUCTS if "*" in task.expression else GUESSED)
            ),
            "tools": [CALCULATOR],
        }
        for task in tasks
    ]


def read_tasks(file: Path) -> list[ArithmeticTask]:
    rows = pq.read_table(file, columns=["prompt", "reward_model"]).to_pylist()
    return [
        ArithmeticTask(
            row["prompt"][-1]["content"].removeprefix("What is ").removesuffix("?"),
            row["reward_model"]["ground_truth"],
        )
        for row in rows
    ]


class Maker:
    """Calls the command line in a folder for all that is made on the way."""

    def __init__(self, folder: Path, seed: int):
        self.folder, self.seed = folder, seed

    def call(self, *arguments: str) -> dict[str, Any]:
        command = [sys.executable, "-m", "aworld_train", *arguments, "--json"]
        done = subprocess.run(command, cwd=self.folder, stdout=subprocess.PIPE, text=True, check=True)
        report: dict[str, Any] = json.loads(done.stdout)
        return report

    def teach(self) -> Path:
        """The folder of the taught model."""
        self.call("dataset", "build", "arithmetic", "--out", "data/arithmetic")
        tokenizer = make_tokenizer()
        save_model(make_model(tokenizer, LAYERS, self.seed), tokenizer, self.folder / "untaught")
        lines = transcripts(read_tasks(self.folder / "data/arithmetic/train.parquet"), self.seed)
        (self.folder / "transcripts.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        source = ("--file", "transcripts.jsonl", "--model", "untaught")
        self.call("dataset", "rows", *source, "--held-out", "0.05", "--out", "data/rows")
        settings = ("model.path=untaught", f"trainer.seed={self.seed}", *SETTINGS)
        self.call("train", str(RECIPES / "quickstart-sft.yaml"), *settings)
        return self.folder / f"runs/quickstart-sft/checkpoints/global_step_{STEPS}/actor/huggingface"

    def measure(self, model: Path) -> dict[str, float] | None:
        """What the marker says of a model; None where it is outside the gate."""
        greedy = self._evaluate("greedy", model)
        accuracy, tool_use = _share(greedy, "score"), _share(greedy, "tool_calls")
        sys.stderr.write(f"Greedily: accuracy {accuracy}, {tool_use} with the tool\n")
        if not MIN_ACCURACY <= accuracy <= MAX_ACCURACY:
            return None
        options = (f"--k={GROUP}", f"--limit={GROUP_TASKS}", "eval.temperature=1.0")
        sampled = self._evaluate("sampled", model, *options)
        groups: dict[str, set[float]] = {}
        for row in sampled:
            groups.setdefault(row["task"], set()).add(row["score"])
        mixed = round(sum(len(scores) > 1 for scores in groups.values()) / len(groups), 4)
        sampled_accuracy = _share(sampled, "score")
        sys.stderr.write(f"At temperature 1: accuracy {sampled_accuracy}, {mixed} of the groups mixed\n")
        if mixed < MIN_MIXED_GROUPS or sampled_accuracy < MIN_SAMPLED_ACCURACY:
            return None
        return {
            "accuracy": accuracy,
            "tool_use": tool_use,
            "mixed_groups": mixed,
            "sampled_accuracy": sampled_accuracy,
            "sampled_tool_use": _share(sampled, "tool_calls"),
            "val_tasks": len(greedy),
        }

    def _evaluate(self, name: str, model: Path, *options: str) -> list[dict[str, Any]]:
        self.call(
            *("eval", str(RECIPES / "quickstart.yaml"), "--name", name, "--checkpoint", str(model), *options)
        )
        rows: list[dict[str, Any]] = pq.read_table(
            self.folder / f"runs/eval-{name}/results.parquet"
        ).to_pylist()
        return rows


def _share(rows: Sequence[dict[str, Any]], column: str) -> float:
    return round(sum(row[column] > 0 for row in rows) / len(rows), 4)


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--work", type=Path, help="a folder for what is made on the way, which is kept")
    arguments = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as temporary:
        folder = arguments.work or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        maker = Maker(folder.resolve(), arguments.seed)
        model = maker.teach()
        measured = maker.measure(model)
        if measured is None:
            sys.exit("It is outside the gate; try another --seed.")
        write(model, arguments.out, arguments.seed, measured)


def write(model: Path, out: Path, seed: int, measured: dict[str, float]) -> None:
    from transformers import AutoModelForCausalLM

    shutil.copytree(model, out)
    tokenizer = make_tokenizer()
    episode = conversation(ArithmeticTask("48/2", "24"), with_tool=True)
    prompt, whole = (
        tokenizer.apply_chat_template(
            messages, tools=[CALCULATOR], add_generation_prompt=len(messages) == 1, return_dict=False
        )
        for messages in (episode[:1], episode)
    )
    facts = {
        "parameters": AutoModelForCausalLM.from_pretrained(model).num_parameters(),
        "vocab_size": len(tokenizer),
        "prompt_tokens": len(prompt),
        "episode_tokens": len(whole),
    }
    marker = {"made_by": MADE_BY, "report": {"seed": seed, **measured, **facts}}
    (out / MARKER).write_text(json.dumps(marker, indent=2) + "\n", encoding="utf-8")
    sys.stdout.write(f"{out}: {json.dumps(marker['report'])}\n")


if __name__ == "__main__":
    main()
