"""Two AWorld agents, one after the other, both in training: `agent: {builder: recipes/agents/aworld_swarm.py:build}`.

An agent that is not to be trained is given another `llm_base_url`, with a key of its own.
"""

from aworld.agents.llm_agent import Agent
from aworld.config.conf import AgentConfig
from aworld.core.agent.swarm import Swarm

from aworld_train.agent import EpisodeContext, get_agent_tool_env_and_servers


def build(context: EpisodeContext) -> Swarm:
    """Called once per episode."""

    def conf(name: str) -> AgentConfig:
        return AgentConfig(
            llm_provider="openai",
            llm_base_url=context.llm_url(name),
            llm_model_name=context.model,
            llm_api_key=context.llm_key(name),
        )

    mcp_config, mcp_servers = get_agent_tool_env_and_servers()
    solver = Agent(
        name="solver",
        system_prompt="Work out the answer with the calculator, then reply with <answer>number</answer>.",
        conf=conf("solver"),
        mcp_config=mcp_config,
        mcp_servers=mcp_servers,
    )
    checker = Agent(
        name="checker",
        system_prompt="Check the answer and repeat it as <answer>number</answer>.",
        conf=conf("checker"),
    )
    return Swarm(solver, checker)
