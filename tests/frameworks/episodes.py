"""A framework's loop in a process of its own, against a scripted model with a real tokenizer behind the gateway."""

import asyncio
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aworld_train.rollout.episode import EpisodeLimits
from aworld_train.rollout.model import SamplingParams
from aworld_train.rollout.response_constraints import RequestRules
from aworld_train.rollout.token_episode import TokenEpisode
from tests.gateways import MODEL, serving
from tests.templates import ScriptedModel, cut_up

LOOPS = Path(__file__).parent / "loops.py"
SECONDS = 120
_LIMITS = EpisodeLimits(20, 10_000, 100_000, SamplingParams(1.0, 1.0, -1))


def call(name: str, **arguments: Any) -> str:
    """A tool call as the model writes it."""
    return f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments})}\n</tool_call>"


def thought(text: str) -> str:
    """A turn after some thinking."""
    return f"<think>\nWhat comes next?\n</think>\n\n{text}"


ADDING = tuple(thought(call("add", a=a, b=b)) for a, b in ((1, 2), (3, 3), (6, 4)))
TEXT = (*ADDING, "10")
JSON = (*ADDING, '{"answer": 10}')
SCRIPTS: dict[str, tuple[str, ...]] = {
    "openai_chat": TEXT,
    "openai_parse": JSON,
    "openai_responses": JSON,
    "anthropic_messages": TEXT,
    "litellm": TEXT,
    "langchain": JSON,
    "langgraph": JSON,
    "langchain_anthropic": TEXT,
    "pydantic_ai": (*ADDING, call("final_result", answer=10)),
    "pydantic_ai_native": JSON,
    "pydantic_ai_anthropic": (*ADDING, thought(call("final_result", answer=10))),
    "smolagents_tools": (*ADDING, call("final_answer", answer="10")),
    "smolagents_code": (
        "Thought: first.\n<code>\nprint(add(1, 2))\n</code>",
        "Thought: second.\n<code>\nprint(add(3, 3))\n</code>",
        "Thought: third.\n<code>\nlast = add(6, 4)\nprint(last)\n</code>",
        "Thought: done.\n<code>\nfinal_answer(last)\n</code>",
    ),
    "instructor": (
        call("Step", numbers=[1, 2]),
        call("Step", numbers=[3, 3]),
        call("Step", numbers=[6, 4]),
        call("Step", answer=10),
    ),
    "openai_agents": JSON,
    "openai_agents_responses": JSON,
    "autogen": JSON,
}
"""What the model writes, turn by turn, by the name of the loop."""


@dataclass(frozen=True)
class Played:
    """A loop that was played: what it printed, its episode, and the model that it talked to."""

    printed: str
    episode: TokenEpisode
    model: ScriptedModel


async def play(python: str, name: str, rules: RequestRules | None = None) -> Played:
    """Play the loop ``name`` with that Python."""
    script = iter(SCRIPTS[name])

    def draw(tokenizer: Any) -> tuple[list[int], bool]:
        return [*cut_up(tokenizer, next(script), 1), tokenizer.eos_token_id], True

    model = ScriptedModel("chatml_tools", draw)
    episode = TokenEpisode(model, _LIMITS)
    async with serving() as gateway:
        session = gateway.open_session(MODEL, episode.conversation, rules)
        program = await asyncio.create_subprocess_exec(
            python,
            str(LOOPS),
            name,
            session.root(),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            env={**os.environ, "LITELLM_LOCAL_MODEL_COST_MAP": "True", "PYTHONDONTWRITEBYTECODE": "1"},
        )
        try:
            async with asyncio.timeout(SECONDS):
                printed, _ = await program.communicate()
        finally:
            if program.returncode is None:
                program.kill()
                await program.wait()
        return Played(printed.decode(), episode, model)
