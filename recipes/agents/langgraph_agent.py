"""A ReAct agent of LangGraph, in this process: `agent: {builder: recipes/agents/langgraph_agent.py:build}`.

It needs the packages langgraph, langchain-openai and langchain-mcp-adapters.
"""

from collections.abc import Awaitable, Callable

from langchain_mcp_adapters.client import MultiServerMCPClient
from langchain_mcp_adapters.tools import load_mcp_tools
from langchain_openai import ChatOpenAI
from langgraph.prebuilt import create_react_agent

from aworld_train.agent import AgentTask, EpisodeContext, get_agent_tool_env_and_servers


def build(context: EpisodeContext) -> Callable[[AgentTask], Awaitable[str]]:
    """Called once per episode."""
    config, (server,) = get_agent_tool_env_and_servers()
    tools = config["mcpServers"][server]
    client = MultiServerMCPClient(
        {server: {"transport": "streamable_http", "url": tools["url"], "headers": tools["headers"]}}
    )
    # The trainer decides whether something is tried again.
    model = ChatOpenAI(
        base_url=context.llm_url(None),
        api_key=context.llm_key(None),
        model=context.model,
        max_retries=0,
    )

    async def answer(task: AgentTask) -> str:
        # One session for the episode: without it every call would open one.
        async with client.session(server) as session:
            agent = create_react_agent(model, await load_mcp_tools(session))
            state = await agent.ainvoke({"messages": task.messages})
        return str(state["messages"][-1].content)

    return answer
