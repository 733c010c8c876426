"""A policy that bombs: every second of its episodes ends with an answer that takes `math` for ever to compute.

An agent for `agent.builder`. The model under training is asked in every episode, so what is trained on is what it
sampled; `bombing` and `ordinary` differ only in what every second episode answers.
"""

import itertools
from collections.abc import Awaitable, Callable, Iterator

import httpx

from aworld_train.agent import AgentTask, EpisodeContext

BOMBS = (
    "9^{9^9}", "100000000!", "[" * 450 + "1" + "]" * 450, r"\{" + ",".join(map(str, range(250))) + r"\}",
    r"\binom{1000000}{500000}", "(x+1)^{190}(x+2)^{190}(x+3)^{190}", r"e^{e^{e^{e^{e}}}}", r"\Gamma(999999)",
    "9" * 990, "5" * 100_000,
)  # fmt: skip
ORDINARY = "-987654321"
_MAX_SECONDS = 120.0

_turns = itertools.count()
_bombs: Iterator[str] = itertools.cycle(BOMBS)


def bombing(context: EpisodeContext) -> Callable[[AgentTask], Awaitable[str]]:
    """Every second episode answers with a bomb."""
    return _agent(context, lambda: next(_bombs))


def ordinary(context: EpisodeContext) -> Callable[[AgentTask], Awaitable[str]]:
    """Every second episode answers with a wrong number."""
    return _agent(context, lambda: ORDINARY)


def _agent(context: EpisodeContext, wrong_answer: Callable[[], str]) -> Callable[[AgentTask], Awaitable[str]]:
    async def answer(task: AgentTask) -> str:
        async with httpx.AsyncClient(timeout=_MAX_SECONDS, trust_env=False) as client:
            response = await client.post(
                f"{context.llm_url(None)}/chat/completions",
                json={"model": context.model, "messages": task.messages},
                headers={"Authorization": f"Bearer {context.llm_key(None)}"},
            )
        response.raise_for_status()
        if next(_turns) % 2:
            return f"<answer>{wrong_answer()}</answer>"
        return str(response.json()["choices"][0]["message"]["content"] or "")

    return answer
