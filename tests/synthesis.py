"""A synthesis by a model that makes and solves tasks by a script: each seed is a case that comes to its own end."""

import json
import os
import re
import threading
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

from aworld_train.dataset import build
from tests import warm
from tests.openai_stub import Message, OpenAIStub, RecordedRequest, calls, says, text_of

CONCURRENCY = 2
RECIPE = f"""
name: pears
env: {{docker_dir: calculator-mcp-server, backend: process, workers: {CONCURRENCY}}}
eval: {{concurrency: {CONCURRENCY}}}
"""

CASES = {
    # Right answers of four attempts with tools and without.
    "kept": (2, 0),
    "fine": (3, 1),
    "easy": (4, 0),
    "hard": (0, 0),
    "wrong": (1, 0),
    "known": (2, 4),
    "unmade": (2, 0),
    "toolless": (2, 0),
    "published": (2, 0),
    "twin": (2, 0),
}
"""``wrong`` has an answer that the solver does not share, and ``hard`` one that it finds in no two attempts alike;
``unmade`` and ``toolless`` are no proposals; ``published`` is a question of another dataset, ``twin`` nearly that of
``kept``.
"""
SEEDS = "".join(f"{case}: {number} crates of {number + 5} pears\n" for number, case in enumerate(CASES, 11))
_WORDS = {
    "kept": "in a warehouse at the northern harbour where the ferry lands twice a day",
    "fine": "on the lorry that left the orchard before the frost of last week came",
    "easy": "behind the counter of the small shop beside the old church and its bell",
    "hard": "below the deck of a ship which sails to islands that few people visit",
    "wrong": "under the roof of a farm whose owner counts everything only by moonlight",
    "known": "at the market square during the festival that ends with many fireworks",
    "published": "inside the museum of agriculture among ploughs and carts of wood and iron",
}


def question_of(case: str, count: str, size: str) -> str:
    if case == "twin":
        return question_of("kept", "11", "16").replace("?", ", please?")
    words = _WORDS.get(case, case)
    return f"How many pears are in {count} {case} crates of {size} pears {words}?"


PUBLISHED = question_of("published", "19", "24")


class SynthesisModel:
    """A script of `OpenAIStub`; ``requests`` counts those of each stage."""

    def __init__(self) -> None:
        self.requests = Counter[str]()
        self._seeds: defaultdict[str, list[int | None]] = defaultdict(list)
        self._lock = threading.Lock()

    def __call__(self, request: RecordedRequest) -> Message:
        user = next(text_of(message) for message in reversed(request.messages) if message["role"] == "user")
        result = text_of(request.messages[-1]).strip() if request.messages[-1]["role"] == "tool" else None
        if "Material: " in user:
            return self._explore(user, result)
        if "Below is a question" in user:
            return self._change(user, result)
        if user.startswith("Added: "):
            self.requests["verify"] += 1
            return says(f"<answer>{'1' if 'fine' in user else '0'}</answer>")
        return self._solve(user, result, request)

    def _explore(self, user: str, result: str | None) -> Message:
        self.requests["explore"] += 1
        case, count, size = _numbers(user.partition("Material: ")[2])
        if result is None and case != "toolless":
            return calls("calculator", expression=f"{count} * {size}")
        if case == "unmade":
            return says("<answer>I found nothing.</answer>")
        question = question_of(case, count, size)
        _, count, size = _numbers(question)
        return _proposal(question=question, answer=str(int(count) * int(size) + (case == "wrong")))

    def _change(self, user: str, result: str | None) -> Message:
        self.requests["change"] += 1
        if result is None:
            return calls("calculator", expression="1 + 0")
        question, answer = re.findall(r"^(?:Question|Answer): (.*)$", user, re.MULTILINE)
        case, _, _ = _numbers(question)
        return _proposal(
            question=f"{question} Count the whole year.",
            answer=answer,
            added_question=f"Added: {case}, how many years?",
            added_answer=1,
        )

    def _solve(self, user: str, result: str | None, request: RecordedRequest) -> Message:
        case, count, size = _numbers(user)
        product = int(count) * int(size)
        with_tools, without = CASES[case]
        stage = "solve" if request.tools else "without"
        with self._lock:
            self.requests[stage] += 1
            seeds = self._seeds[f"{stage} {user}"]
            seed: Any = request.body.get("seed")
            # A turn's seed is that of its attempt and the turn's number.
            attempt = seed if result is None else seed - 1
            if attempt not in seeds:
                seeds.append(attempt)
            number = seeds.index(attempt)
        if request.tools and result is None:
            return calls("calculator", expression=f"{count} * {size}")
        if case == "wrong":
            return says(f"<answer>{product}</answer>")
        is_right = number < (with_tools if request.tools else without)
        return says(f"<answer>{product if is_right else product + 10 + number}</answer>")


def _numbers(text: str) -> tuple[str, str, str]:
    found = re.search(r"(\w+): (\d+) crates of (\d+)", text)
    if found:
        return found[1], found[2], found[3]
    found = re.search(r"in (\d+) (\w+) crates of (\d+)", text)
    assert found is not None, text
    return found[2], found[1], found[3]


def _proposal(**fields: Any) -> Message:
    return says(f"It is settled. <answer>{json.dumps(fields)}</answer>")


def make_folder(folder: Path) -> Path:
    """A recipe, seeds, and a published dataset."""
    (folder / "recipe.yaml").write_text(RECIPE)
    (folder / "seeds.txt").write_text(SEEDS)
    (folder / "published.jsonl").write_text(json.dumps({"query": PUBLISHED, "answer": "456"}) + "\n")
    build("jsonl", folder / "published", files=[folder / "published.jsonl"], splits={"test": 1.0})
    return folder


def start(
    folder: Path,
    stub: OpenAIStub,
    name: str,
    *arguments: str,
    seeds: str = "seeds.txt",
    against: str | None = "published",
) -> warm.Started:
    command = f"dataset synthesize recipe.yaml --seeds {seeds} --out data/{name} --name {name} --json"
    endpoint = ["--model-url", stub.url(), "--model", "mock"]
    left_out = ["--against", against] if against else []
    whole = ("-m", "aworld_train", *command.split(), *endpoint, *left_out, *arguments)
    return warm.Started(*whole, cwd=folder, env=os.environ)


def finish(process: warm.Started, code: int = 0) -> dict[str, Any]:
    """The object that the command prints, an error included."""
    output, errors = process.communicate(timeout=900)
    assert process.returncode == code, errors
    printed: dict[str, Any] = json.loads(output.splitlines()[-1] if code else output)
    return printed
