"""An agent with a calculator of its own, which also writes down what VeRL's client got from the engine.

What it writes is independent of the package's records: prompt, tokens and log-probabilities of each model call. VeRL is
imported where an episode is played, not by each process that only looks whether there is such an agent.
"""

import json
import os
from functools import cache
from pathlib import Path
from typing import Any

import openai

from aworld_train.adapter.episodes.record import RUN_DIR_VARIABLE
from aworld_train.agent import AgentTask, EpisodeContext

_TOOLS: Any = [
    {
        "type": "function",
        "function": {
            "name": "calculator",
            "description": "Compute an arithmetic expression",
            "parameters": {
                "type": "object",
                "properties": {"expression": {"type": "string"}},
                "required": ["expression"],
            },
        },
    }
]
_MAX_TURNS = 3


@cache
def _write_down() -> None:
    """Have VeRL's client write down each answer."""
    from verl.workers.rollout.llm_server import LLMServerClient

    generate = LLMServerClient.generate

    async def generate_and_write(self: Any, request_id: Any, *, prompt_ids: Any, **options: Any) -> Any:
        prompt = list(prompt_ids)
        output = await generate(self, request_id, prompt_ids=prompt_ids, **options)
        line = {"prompt": prompt, "tokens": list(output.token_ids), "logprobs": list(output.log_probs)}
        with (Path(os.environ[RUN_DIR_VARIABLE]) / "engine.jsonl").open("a") as file:
            file.write(json.dumps(line) + "\n")
        return output

    LLMServerClient.generate = generate_and_write


def build(context: EpisodeContext) -> Any:
    _write_down()

    async def answer(task: AgentTask) -> str:
        client = openai.AsyncOpenAI(base_url=context.llm_url("solver"), api_key=context.llm_key("solver"))
        messages: list[Any] = list(task.messages)
        async with client:
            for _ in range(_MAX_TURNS):
                response = await client.chat.completions.create(
                    model=context.model, messages=messages, tools=_TOOLS
                )
                message = response.choices[0].message
                messages.append(message.model_dump(exclude_none=True))
                if not message.tool_calls:
                    break
                messages += [
                    {"role": "tool", "tool_call_id": call.id, "content": _computed(call.function.arguments)}
                    for call in message.tool_calls
                ]
        return message.content or ""

    return answer


def _computed(arguments: str) -> str:
    try:
        expression = str(json.loads(arguments)["expression"])
        if set(expression) <= set("0123456789+-*() ") and "**" not in expression and len(expression) < 60:
            return str(eval(expression, {"__builtins__": {}}))
    except (ValueError, KeyError, TypeError, SyntaxError, ArithmeticError):
        pass
    return "Error: no expression"
