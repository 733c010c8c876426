"""AWorld agents whose first prompt is the task and nothing else, as that of our own loop is in the quickstart."""

from aworld.agents.llm_agent import Agent
from aworld.config.conf import AgentConfig

from aworld_train.agent import AworldAgentLoop, get_agent_tool_env_and_servers


class CalculatorLoop(AworldAgentLoop):
    """One agent, as a class."""

    async def build_agents(self) -> Agent:
        config, servers = get_agent_tool_env_and_servers()
        conf = AgentConfig(
            llm_provider="openai",
            llm_base_url=await self.get_llm_server_address(),
            llm_model_name=await self.get_llm_server_model_name(),
            llm_api_key="dummy",
        )
        return Agent(name="solver", system_prompt="", conf=conf, mcp_config=config, mcp_servers=servers)
