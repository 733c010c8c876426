"""Agents for tests, as users write them: plain clients of the OpenAI API and of MCP, that behave in many ways.

Each function here is a builder: it returns ``answer(task)``, which finds the model and the tools in its context.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any

from mcp import ClientSession
from mcp.client.streamable_http import streamablehttp_client
from openai import AsyncOpenAI, BadRequestError

from aworld_train.agent import AgentTask, EpisodeContext

Answer = Callable[[AgentTask], Awaitable[str]]


class Toolbox:
    """An MCP session of the episode, with its tools as OpenAI functions."""

    def __init__(self, context: EpisodeContext):
        self._context = context
        self._stack = AsyncExitStack()
        self.functions: list[dict[str, Any]] = []

    async def __aenter__(self) -> "Toolbox":
        headers = {"Authorization": f"Bearer {self._context.mcp_token}"}
        read, write, _ = await self._stack.enter_async_context(
            streamablehttp_client(self._context.mcp_url, headers=headers)
        )
        self._session = await self._stack.enter_async_context(ClientSession(read, write))
        await self._session.initialize()
        self.functions = [
            {
                "type": "function",
                "function": {"name": t.name, "description": t.description, "parameters": t.inputSchema},
            }
            for t in (await self._session.list_tools()).tools
        ]
        return self

    async def __aexit__(self, *error: Any) -> None:
        await self._stack.aclose()

    async def call(self, name: str, arguments: str) -> str:
        result = await self._session.call_tool(name, json.loads(arguments))
        return "".join(part.text for part in result.content if part.type == "text")


class Chat:
    """A conversation with the model through the official client."""

    def __init__(self, context: EpisodeContext, agent: str | None = None):
        self._client = AsyncOpenAI(
            base_url=context.llm_url(agent), api_key=context.llm_key(agent), timeout=60
        )
        self._model = context.model
        self.messages: list[Any] = []

    async def ask(self, tools: list[dict[str, Any]], **options: Any) -> Any:
        if tools:
            options["tools"] = tools
        response = await self._client.chat.completions.create(
            model=self._model, messages=self.messages, **options
        )
        message = response.choices[0].message
        self.messages.append(message.model_dump(exclude_none=True))
        return message

    async def react(self, tools: Toolbox, change: Callable[[list[Any]], None] = lambda _: None) -> str:
        """Ask and call until there is an answer; ``change`` may do anything to the history in between."""
        while calls := (message := await self.ask(tools.functions)).tool_calls:
            for call in calls:
                result = await tools.call(call.function.name, call.function.arguments)
                self.messages.append({"role": "tool", "tool_call_id": call.id, "content": result})
            change(self.messages)
        return message.content or ""


def plain(context: EpisodeContext) -> Answer:
    """Does the task with the tools, as our own loop does."""

    async def answer(task: AgentTask) -> str:
        chat = Chat(context)
        chat.messages = list(task.messages)
        async with Toolbox(context) as tools:
            return await chat.react(tools)

    return answer


def swarm(context: EpisodeContext) -> Answer:
    """A planner without tools tells a worker what to do."""

    async def answer(task: AgentTask) -> str:
        planner, worker = Chat(context, "planner"), Chat(context, "worker")
        planner.messages = [{"role": "system", "content": "Plan."}, *task.messages]
        plan = (await planner.ask([])).content
        worker.messages = [{"role": "user", "content": f"{plan} {task.text}"}]
        async with Toolbox(context) as tools:
            return await worker.react(tools)

    return answer


def without_tools(context: EpisodeContext) -> Answer:
    async def answer(task: AgentTask) -> str:
        chat = Chat(context)
        chat.messages = list(task.messages)
        return (await chat.ask([])).content or ""

    return answer


def showing_extra(context: EpisodeContext) -> Answer:
    """Shows the model what it knows of the task beside the messages."""

    async def answer(task: AgentTask) -> str:
        chat = Chat(context)
        chat.messages = [{"role": "user", "content": json.dumps(dict(task.extra))}]
        return (await chat.ask([])).content or ""

    return answer


def silent(context: EpisodeContext) -> Answer:
    """Never asks the model."""

    async def answer(task: AgentTask) -> str:
        return "<answer>42</answer>"

    return answer


def crashing(context: EpisodeContext) -> Answer:
    async def answer(task: AgentTask) -> str:
        await without_tools(context)(task)
        raise RuntimeError("a bug of mine")

    return answer


def hanging(context: EpisodeContext) -> Answer:
    async def answer(task: AgentTask) -> str:
        await without_tools(context)(task)
        await asyncio.sleep(3600)
        return ""

    return answer


def flooding(context: EpisodeContext) -> Answer:
    """Asks the model without end."""

    async def answer(task: AgentTask) -> str:
        while True:
            await without_tools(context)(task)

    return answer


def forgiving(context: EpisodeContext) -> Answer:
    """Makes up an answer whatever fails."""

    async def answer(task: AgentTask) -> str:
        try:
            return await plain(context)(task)
        except Exception:
            return "<answer>42</answer>"

    return answer


def editing(context: EpisodeContext) -> Answer:
    """Rewrites what a tool said, once it has been read."""

    def change(messages: list[Any]) -> None:
        results = [m for m in messages if m.get("role") == "tool"]
        for old in results[:-1]:
            old["content"] = "[removed]"

    async def answer(task: AgentTask) -> str:
        chat = Chat(context)
        chat.messages = list(task.messages)
        async with Toolbox(context) as tools:
            return await chat.react(tools, change)

    return answer


def resetting(context: EpisodeContext) -> Answer:
    """Begins anew with a short history after every tool call."""

    async def answer(task: AgentTask) -> str:
        chat = Chat(context)
        chat.messages = list(task.messages)

        def change(messages: list[Any]) -> None:
            last = messages[-1]["content"]
            messages[:] = [*task.messages, {"role": "user", "content": f"So far: {last}"}]

        async with Toolbox(context) as tools:
            return await chat.react(tools, change)

    return answer


def shortening(context: EpisodeContext) -> Answer:
    """Forgets what tools said when it is told that its history is too long."""

    async def answer(task: AgentTask) -> str:
        chat = Chat(context)
        chat.messages = list(task.messages)
        async with Toolbox(context) as tools:
            try:
                return await chat.react(tools)
            except BadRequestError as error:
                assert error.code == "context_length_exceeded"
                chat.messages = [
                    {**m, "content": "long"} if m["role"] == "tool" else m for m in chat.messages
                ]
                return await chat.react(tools)

    return answer
