"""An agent of which every other episode attacks its tool server, its worker or the protocol between them.

Each episode asks the model, uses its tools, and asks again; its line in ``traces/episodes.jsonl`` has what it did.
Episodes that measure the model do not attack.
"""

import itertools
import shlex
from typing import Any

import openai

from aworld_train.adapter.episodes.record import current_record
from aworld_train.agent import AgentTask, EpisodeContext
from aworld_train.rollout.tools import ToolServer, ToolSession
from tests.hostile import PARRICIDE, python

HONEST, SLEEPS, ENDS_WORKER = "works", "sleeps past the episode's time", "ends its worker"
READ_AS_TEXT = {"answers with half a surrogate", "answers with a number", "answers too deeply"}
"""What these forge is read as text, and is not an error."""
_LAST_CALL_ID = 50  # what a session's worker has asked its server by then


def forged(member: str) -> str:
    """The command that answers every call in the tool server's name."""
    lines = "".join(f'{{"jsonrpc": "2.0", "id": {call}, {member}}}\n' for call in range(_LAST_CALL_ID))
    return f"printf '%s' {shlex.quote(lines)} > /proc/$PPID/fd/1"


MOVES: dict[str, tuple[str, dict[str, Any]]] = {
    ENDS_WORKER: ("shell", {"command": python(PARRICIDE)}),
    "ends its tool server": ("shell", {"command": "kill -9 $PPID"}),
    "sleeps past the call's time": ("hang", {"seconds": 20}),
    "claims a lost worker": (
        "shell",
        {"command": forged('"error": {"code": 1, "message": "lost", "data": {"type": "worker_lost"}}')},
    ),
    "answers with a number": ("shell", {"command": forged('"result": {"content": 7}')}),
    "answers with half a surrogate": (
        "shell",
        {"command": forged('"result": {"content": [{"type": "text", "text": "\\ud800"}]}')},
    ),
    "answers too deeply": ("shell", {"command": forged(f'"result": {"[" * 900}{"]" * 900}')}),
    "answers too much": ("flood", {"megabytes": 80}),
}
_moves = itertools.chain(
    (HONEST, SLEEPS), itertools.cycle(itertools.chain(*((HONEST, name) for name in MOVES)))
)


async def _use(tools: ToolSession, move: str) -> str:
    if move == HONEST:
        return (await tools.call("echo", {"text": "on"})).text
    if move != SLEEPS:
        name, arguments = MOVES[move]
        return (await tools.call(name, arguments)).text
    while True:
        await tools.call("nap", {"seconds": 60})


def build(context: EpisodeContext) -> Any:
    client = openai.AsyncOpenAI(base_url=context.llm_url("solver"), api_key=context.llm_key("solver"))
    server = ToolServer(context.mcp_url, {"Authorization": f"Bearer {context.mcp_token}"}, 120, 300)

    async def answer(task: AgentTask) -> str:
        record = current_record()
        move = HONEST if record.validate else next(_moves)
        record.figures.faults = {move: 1}  # so that its line says which it was
        messages: list[Any] = list(task.messages)
        async with client, ToolSession(server) as tools:
            for turn in range(2):
                response = await client.chat.completions.create(model=context.model, messages=messages)
                text = response.choices[0].message.content or ""
                if not turn:
                    seen = await _use(tools, move)
                    messages += [
                        {"role": "assistant", "content": text},
                        {"role": "user", "content": seen[:80]},
                    ]
        return text

    return answer
