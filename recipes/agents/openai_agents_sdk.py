"""An agent of the OpenAI Agents SDK, in this process: `agent: {builder: recipes/agents/openai_agents_sdk.py:build}`.

It needs the package openai-agents.
"""

from collections.abc import Awaitable, Callable

from agents import Agent, ModelSettings, OpenAIChatCompletionsModel, Runner, set_tracing_disabled
from agents.mcp import MCPServerStreamableHttp
from openai import AsyncOpenAI

from aworld_train.agent import AgentTask, EpisodeContext, get_agent_tool_env_and_servers

# Traces would go to api.openai.com.
set_tracing_disabled(True)


def build(context: EpisodeContext) -> Callable[[AgentTask], Awaitable[str]]:
    """Called once per episode."""
    config, (server,) = get_agent_tool_env_and_servers()
    tools = config["mcpServers"][server]

    async def answer(task: AgentTask) -> str:
        async with (
            # The trainer decides whether something is tried again.
            AsyncOpenAI(
                base_url=context.llm_url(None), api_key=context.llm_key(None), max_retries=0
            ) as client,
            MCPServerStreamableHttp(
                params={"url": tools["url"], "headers": tools["headers"]}, cache_tools_list=True
            ) as calculator,
        ):
            agent = Agent(
                name="calculator_agent",
                instructions=task.system or None,
                model=OpenAIChatCompletionsModel(model=context.model, openai_client=client),
                model_settings=ModelSettings(),
                mcp_servers=[calculator],
            )
            result = await Runner.run(agent, task.text)
            return str(result.final_output)

    return answer
