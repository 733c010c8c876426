"""Runs an AWorld ``Agent`` or ``Swarm`` on one task, hundreds at a time in one event loop.

AWorld has process-wide state, so an episode's agents get unique identifiers and a memory of their own, and all other
state under their identifiers is dropped when they finish. An error that AWorld swallows, or turns into an answer, ends
the episode as a failure.

Only this module and ``aworld_process`` use private names of AWorld, of the version that the extra ``aworld`` pins. Its
openai SDK needs an asynchronous httpx client, the only one in this package that sends requests of an episode.
"""

import asyncio
import contextlib
import os
import uuid
from typing import Any

import httpx

from aworld_train.agent.aworld_process import drop_traces, episode_memory, prepare, unused_agent_id
from aworld_train.agent.task import AgentTask, EpisodeContext
from aworld_train.episode.message import content_text
from aworld_train.recipe.keys import DEFAULT_FRAMEWORK
from aworld_train.rollout.http_client import tls_context
from aworld_train.rollout.outcome import AgentFailed, EnvironmentLost

_CANCEL_SECONDS = 5.0
# AWorld's message for a completion without text and calls. The model caused it, so the episode's answer is empty.
_EMPTY_COMPLETION = "LLM returned empty or invalid response"
_TRAINED_PROVIDER = DEFAULT_FRAMEWORK
"""The ``llm_provider`` by which AWorld's documents name the model in training, whatever the framework is."""
_NO_PROVIDER = (None, "")


async def run_aworld(built: Any, task: AgentTask, context: EpisodeContext) -> str:
    """Run a newly built AWorld ``Agent`` or ``Swarm`` on the task.

    Agents that use the model in training get a URL and a key by their names; agents with another endpoint keep it.
    """
    from aworld.config.conf import TaskConfig
    from aworld.core.task import Task

    prepare()
    agents = _agents_of(built)
    async with httpx.AsyncClient(verify=tls_context(), timeout=context.seconds, trust_env=False) as client:
        _make_distinct(agents)
        refusals: list[str] = []
        for agent in agents:
            _quieten(agent, refusals)
            _direct(agent, task, context, client)
        conf = TaskConfig().model_dump() | {
            # AWorld sends a tool's result again if the agent does nothing for 15 seconds; with hundreds of agents on a
            # busy machine that is normal.
            "post_tool_progress_watchdog_timeout_seconds": 10 * context.seconds,
            # The delay until it notices that the task is over.
            "post_tool_progress_watchdog_poll_seconds": 0.2,
        }
        is_agent = len(agents) == 1 and agents[0] is built
        aworld_task = Task(
            id=uuid.uuid4().hex,
            session_id=uuid.uuid4().hex,
            input=_input(task),
            conf=conf,
            **({"agent": built} if is_agent else {"swarm": built}),
        )
        for agent in agents:
            _claim_sandbox(agent, aworld_task.id)
        with episode_memory():
            try:
                await _list_tools(agents, context)
                return _answer(await _run(aworld_task), refusals)
            finally:
                await drop_traces(aworld_task, agents)


def _agents_of(built: Any) -> list[Any]:
    from aworld.core.agent.base import BaseAgent

    if isinstance(built, BaseAgent):
        return [built]
    found: dict[int, Any] = {}
    pending = [*built.topology, *built.register_agents, getattr(built.builder, "root_agent", None)]
    while pending:
        item = pending.pop(0)
        if isinstance(item, list | tuple):
            pending[:0] = item
        elif isinstance(item, BaseAgent):
            found.setdefault(id(item), item)
        elif item is not None and hasattr(item, "topology"):
            pending[:0] = [*item.topology, *item.register_agents]
    return list(found.values())


def _make_distinct(agents: list[Any]) -> None:
    """Give every agent an identifier that is unique in this process.

    AWorld's repeat after seven minutes, and the tool calls of an agent with a duplicate go through the other's sandbox.
    """
    renamed: dict[str, str] = {}
    for agent in agents:
        old_id = agent.id()
        agent._id = renamed[old_id] = unused_agent_id(agent.name())
    for agent in agents:
        agent.handoffs = [renamed.get(agent_id, agent_id) for agent_id in agent.handoffs]


def _quieten(agent: Any, refusals: list[str]) -> None:
    """Stop an agent from logging prompts, and collect the endpoint's errors in ``refusals``: AWorld loses them."""

    async def save_nothing(*_: Any, **__: Any) -> None:
        pass

    # The prompt log draws a box around every prompt, and downloads a vocabulary to count its tokens.
    agent._log_messages = lambda *_, **__: None
    # Would write ./failed_requests.
    agent._save_failed_request_context = save_nothing
    invoke = getattr(agent, "invoke_model", None)
    if invoke is None:
        return

    async def remember_refusal(*arguments: Any, **options: Any) -> Any:
        try:
            return await invoke(*arguments, **options)
        except Exception as error:
            refusals.append(str(error))
            raise

    agent.invoke_model = remember_refusal


def _direct(agent: Any, task: AgentTask, context: EpisodeContext, client: httpx.AsyncClient) -> None:
    """Set an agent's model to the one in training and its prompt to the task's, unless it has others."""
    from aworld.models.llm import get_llm_model

    if not getattr(agent, "system_prompt", None):
        agent.system_prompt = task.system or None
    conf = getattr(agent.conf, "llm_config", None)
    if conf is None:
        return
    if not _is_in_training(agent.name(), conf, context):
        # By default AWorld guesses the provider from the model's name, and takes a missing key from OPENAI_API_KEY.
        conf.llm_provider = conf.llm_provider or "openai"
        conf.llm_api_key = conf.llm_api_key or "unused"
        return
    conf.llm_base_url = context.llm_url(agent.name())
    conf.llm_api_key = context.llm_key(agent.name())
    conf.llm_model_name = agent.model_name = conf.llm_model_name or context.model
    conf.llm_provider = "openai"
    conf.llm_sync_enabled = False
    # The engine retries. AWorld would refuse a repeated request again, or count a lost answer twice.
    conf.max_retries = 0
    agent.llm_max_attempts = 1
    agent._llm = get_llm_model(conf, http_client=client, timeout=context.seconds)
    # Only the synchronous client sets it; both read it.
    agent._llm.provider.is_http_provider = False


def _is_in_training(name: str, conf: Any, context: EpisodeContext) -> bool:
    if _is_from_environment(conf):
        return True
    if conf.llm_provider == _TRAINED_PROVIDER or not conf.llm_base_url:
        if conf.llm_provider not in (*_NO_PROVIDER, "openai", _TRAINED_PROVIDER):
            raise AgentFailed(
                f"The agent {name} has llm_provider={conf.llm_provider!r} and no llm_base_url. Give it the address "
                f"of its model, or llm_provider={_TRAINED_PROVIDER!r} for the model in training."
            )
        return True
    return bool(conf.llm_base_url.rstrip("/") == context.llm_url(None).rstrip("/"))


def _is_from_environment(conf: Any) -> bool:
    """Whether AWorld made the configuration, from its variables, because the agent was given none."""
    return (
        conf.llm_provider == os.environ.get("LLM_PROVIDER", "openai")
        and conf.llm_model_name == os.environ.get("LLM_MODEL_NAME")
        and conf.llm_api_key == os.environ.get("LLM_API_KEY")
        and conf.llm_base_url == os.environ.get("LLM_BASE_URL")
        and str(conf.llm_temperature) == str(float(os.environ.get("LLM_TEMPERATURE", "0.7")))
    )


def _input(task: AgentTask) -> str:
    """The task as one text: AWorld takes no conversation."""
    turns = [message for message in task.messages if message.get("role") != "system"]
    if len(turns) == 1:
        return content_text(turns[0].get("content"))
    return "\n\n".join(f"{message.get('role')}: {content_text(message.get('content'))}" for message in turns)


def _claim_sandbox(agent: Any, task_id: str) -> None:
    """Claim the agent's sandbox: a task that ends closes all sandboxes of the process that no task has claimed."""
    if agent.sandbox is not None:
        agent.sandbox.metadata = {**(agent.sandbox.metadata or {}), "task_list": [task_id]}


async def _list_tools(agents: list[Any], context: EpisodeContext) -> None:
    """List the tools before the first turn: if that fails, AWorld only warns and the agent would guess."""
    for agent in agents:
        if not agent.mcp_servers or agent.sandbox is None:
            continue
        schemas = await agent.sandbox.mcpservers.list_tools() or []
        names = [tool["function"]["name"] for tool in schemas]
        for server in agent.mcp_servers:
            if any(name.startswith(f"{server}__") for name in names):
                continue
            config = agent.mcp_config.get("mcpServers", {}).get(server, {})
            problem = f"the agent {agent.name()} could not list the tools of {server}"
            if config.get("url") == context.mcp_url:
                raise EnvironmentLost(f"{problem} at {context.mcp_url}")
            raise AgentFailed(problem)


async def _run(aworld_task: Any) -> Any:
    """On cancellation AWorld gets a few seconds to end the task, since it may be waiting for a tool."""
    from aworld.runner import Runners

    work = asyncio.ensure_future(Runners.run_task(aworld_task))
    try:
        return (await asyncio.shield(work)).get(aworld_task.id)
    except asyncio.CancelledError:
        work.cancel()
        await asyncio.wait({work}, timeout=_CANCEL_SECONDS)
        raise
    finally:
        if work.done() and not work.cancelled():
            work.exception()  # retrieved, or asyncio would log it


def _answer(response: Any, refusals: list[str]) -> str:
    if response is None:
        raise AgentFailed("AWorld returned nothing.")
    status = str(getattr(response.status, "value", response.status))
    if not response.success or status not in ("success", "finished"):
        reason = refusals[-1] if refusals else response.msg or response.answer or "no reason given"
        if _EMPTY_COMPLETION in reason:
            return ""
        raise AgentFailed(f"AWorld ended the task as {status}: {reason}")
    with contextlib.suppress(AttributeError):
        if not isinstance(response.answer, str):
            return str(response.answer.content)
    if not isinstance(response.answer, str):
        raise AgentFailed(f"AWorld's answer is of type {type(response.answer).__name__}, not text.")
    return response.answer
