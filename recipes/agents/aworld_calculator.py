"""An AWorld agent with the tools of the recipe: `agent: {builder: recipes/agents/aworld_calculator.py:build}`."""

from aworld.agents.llm_agent import Agent
from aworld.config.conf import AgentConfig

from aworld_train.agent import EpisodeContext, get_agent_tool_env_and_servers


def build(context: EpisodeContext) -> Agent:
    """Called once per episode."""
    mcp_config, mcp_servers = get_agent_tool_env_and_servers()
    return Agent(
        name="calculator_agent",
        # The task says all: the quickstart's model has been trained without any other words.
        system_prompt="",
        conf=AgentConfig(
            llm_provider="openai",
            llm_base_url=context.llm_url("calculator_agent"),
            llm_model_name=context.model,
            llm_api_key=context.llm_key("calculator_agent"),
        ),
        mcp_config=mcp_config,
        mcp_servers=mcp_servers,
    )
