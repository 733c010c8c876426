"""Loops of agents' frameworks, as their manuals write them: three calls of a tool, then the answer.

Run as a program in an environment that has the frameworks: ``python loops.py NAME ROOT``, where ROOT is the address of
a rollout without ``/v1``. It prints the answer.
"""

import asyncio
import json
import os
import sys
from collections.abc import Callable
from typing import Any

from pydantic import BaseModel

TASK = "Add 1 and 2, 3 and 3, then 6 and 4. What is the last sum?"
SYSTEM = "You are an assistant with tools."
MODEL = "model"


class Answer(BaseModel):
    """The answer to the task."""

    answer: int


def add(a: int, b: int) -> int:
    """Adds two numbers.

    Args:
        a: The first number.
        b: The second number.
    """
    return a + b


FUNCTION: dict[str, Any] = {
    "name": "add",
    "description": "Adds two numbers.",
    "parameters": {
        "type": "object",
        "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
        "required": ["a", "b"],
        "additionalProperties": False,
    },
}
TOOL = {"type": "function", "function": FUNCTION}
STRICT_TOOL = {"type": "function", "function": {**FUNCTION, "strict": True}}


def openai_chat(root: str) -> Any:
    from openai import OpenAI

    return _chat_loop(
        lambda **body: OpenAI(base_url=f"{root}/v1", api_key="k").chat.completions.create(**body)
    )


def _chat_loop(create: Callable[..., Any], **options: Any) -> Any:
    messages: list[Any] = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": TASK}]
    while True:
        message = create(model=MODEL, messages=messages, tools=[TOOL], **options).choices[0].message
        if not message.tool_calls:
            return message.content
        messages.append(message.model_dump(exclude_none=True))
        for call in message.tool_calls:
            result = add(**json.loads(call.function.arguments))
            messages.append({"role": "tool", "tool_call_id": call.id, "content": str(result)})


def openai_parse(root: str) -> Any:
    from openai import OpenAI

    client = OpenAI(base_url=f"{root}/v1", api_key="k")
    messages: list[Any] = [{"role": "user", "content": TASK}]
    while True:
        message = (
            client.chat.completions.parse(
                model=MODEL,
                messages=messages,
                tools=[STRICT_TOOL],
                response_format=Answer,
                parallel_tool_calls=False,
            )
            .choices[0]
            .message
        )
        messages.append(message)
        if not message.tool_calls:
            assert message.parsed is not None
            return message.parsed.answer
        for call in message.tool_calls:
            result = add(**json.loads(call.function.arguments))
            messages.append({"role": "tool", "tool_call_id": call.id, "content": str(result)})


def openai_responses(root: str) -> Any:
    from openai import OpenAI

    client = OpenAI(base_url=f"{root}/v1", api_key="k")
    items: Any = [{"role": "user", "content": TASK}]
    previous = None
    while True:
        response = client.responses.parse(
            model=MODEL,
            instructions=SYSTEM,
            input=items,
            tools=[{"type": "function", "strict": True, **FUNCTION}],
            text_format=Answer,
            previous_response_id=previous,
        )
        calls = [item for item in response.output if item.type == "function_call"]
        if not calls:
            assert response.output_parsed is not None
            return response.output_parsed.answer
        previous = response.id
        items = [
            {
                "type": "function_call_output",
                "call_id": call.call_id,
                "output": str(add(**json.loads(call.arguments))),
            }
            for call in calls
        ]


def anthropic_messages(root: str) -> Any:
    from anthropic import Anthropic

    client = Anthropic(base_url=root, api_key="k")
    tool: Any = {
        "name": "add",
        "description": FUNCTION["description"],
        "input_schema": FUNCTION["parameters"],
    }
    messages: list[Any] = [{"role": "user", "content": TASK}]
    while True:
        message = client.messages.create(
            model=MODEL, max_tokens=500, system=SYSTEM, messages=messages, tools=[tool]
        )
        messages.append({"role": "assistant", "content": message.content})
        calls: list[Any] = [block for block in message.content if block.type == "tool_use"]
        if not calls:
            return "".join(block.text for block in message.content if block.type == "text")
        results = [
            {"type": "tool_result", "tool_use_id": call.id, "content": str(add(**call.input))}
            for call in calls
        ]
        messages.append({"role": "user", "content": results})


def litellm(root: str) -> Any:
    import litellm as library

    return _chat_loop(
        lambda **body: library.completion(
            **{**body, "model": f"openai/{MODEL}"}, api_base=f"{root}/v1", api_key="k"
        ),
        tool_choice="auto",
    )


def langchain(root: str) -> Any:
    from langchain_core.messages import HumanMessage, ToolMessage
    from langchain_openai import ChatOpenAI

    model = ChatOpenAI(model=MODEL, base_url=f"{root}/v1", api_key="k")
    structured = model.with_structured_output(Answer, include_raw=True, tools=[STRICT_TOOL], strict=True)
    messages: list[Any] = [HumanMessage(TASK)]
    while True:
        result = structured.invoke(messages)
        messages.append(result["raw"])
        if not result["raw"].tool_calls:
            return result["parsed"].answer
        messages += [
            ToolMessage(str(add(**c["args"])), tool_call_id=c["id"]) for c in result["raw"].tool_calls
        ]


def langgraph(root: str) -> Any:
    from langchain.agents import create_agent
    from langchain.agents.structured_output import ProviderStrategy
    from langchain_openai import ChatOpenAI

    model = ChatOpenAI(model=MODEL, base_url=f"{root}/v1", api_key="k")
    agent = create_agent(model, [add], system_prompt=SYSTEM, response_format=ProviderStrategy(Answer))
    return agent.invoke({"messages": [("user", TASK)]})["structured_response"].answer


def langchain_anthropic(root: str) -> Any:
    from langchain.agents import create_agent
    from langchain_anthropic import ChatAnthropic

    model = ChatAnthropic(model=MODEL, base_url=root, api_key="k", max_tokens=500)
    agent = create_agent(model, [add], system_prompt=SYSTEM)
    return agent.invoke({"messages": [("user", TASK)]})["messages"][-1].text


def pydantic_ai(root: str) -> Any:
    from pydantic_ai import Agent

    agent = Agent(_pydantic_ai_model(root), output_type=Answer, tools=[add], system_prompt=SYSTEM)
    return agent.run_sync(TASK).output.answer


def pydantic_ai_native(root: str) -> Any:
    from pydantic_ai import Agent, NativeOutput
    from pydantic_ai.profiles.openai import OpenAIModelProfile

    model = _pydantic_ai_model(root, profile=OpenAIModelProfile(supports_json_schema_output=True))
    agent = Agent(model, output_type=NativeOutput(Answer), tools=[add], system_prompt=SYSTEM)
    return agent.run_sync(TASK).output.answer


def _pydantic_ai_model(root: str, **options: Any) -> Any:
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider

    return OpenAIChatModel(MODEL, provider=OpenAIProvider(base_url=f"{root}/v1", api_key="k"), **options)


def pydantic_ai_anthropic(root: str) -> Any:
    from anthropic import AsyncAnthropic
    from pydantic_ai import Agent
    from pydantic_ai.models.anthropic import AnthropicModel
    from pydantic_ai.providers.anthropic import AnthropicProvider

    client = AsyncAnthropic(base_url=root, api_key="k")
    model = AnthropicModel(MODEL, provider=AnthropicProvider(anthropic_client=client))
    agent = Agent(model, output_type=Answer, tools=[add], system_prompt=SYSTEM)
    return agent.run_sync(TASK).output.answer


def smolagents_tools(root: str) -> Any:
    from smolagents import ToolCallingAgent

    return _smolagent(ToolCallingAgent, root)


def smolagents_code(root: str) -> Any:
    from smolagents import CodeAgent

    return _smolagent(CodeAgent, root)


def _smolagent(kind: Any, root: str) -> Any:
    from smolagents import OpenAIServerModel, tool

    model = OpenAIServerModel(MODEL, api_base=f"{root}/v1", api_key="k")
    return kind(tools=[tool(add)], model=model, verbosity_level=0).run(TASK)


def instructor(root: str) -> Any:
    import instructor as library
    from openai import OpenAI

    class Step(BaseModel):
        """The next step: two numbers to add, or the answer."""

        numbers: list[int] = []
        answer: int | None = None

    client = library.from_openai(OpenAI(base_url=f"{root}/v1", api_key="k"))
    messages: list[Any] = [{"role": "user", "content": TASK}]
    while True:
        step, completion = client.chat.completions.create_with_completion(
            model=MODEL, messages=messages, response_model=Step, max_retries=0
        )
        if step.answer is not None:
            return step.answer
        message = completion.choices[0].message
        messages.append(message.model_dump(include={"role", "content", "tool_calls"}))
        for call in message.tool_calls:
            messages.append({"role": "tool", "tool_call_id": call.id, "content": str(add(*step.numbers))})


def openai_agents(root: str) -> Any:
    from agents import OpenAIChatCompletionsModel

    return _openai_agent(OpenAIChatCompletionsModel, root)


def openai_agents_responses(root: str) -> Any:
    from agents import OpenAIResponsesModel

    return _openai_agent(OpenAIResponsesModel, root)


def _openai_agent(kind: Any, root: str) -> Any:
    from agents import Agent, ModelSettings, Runner, function_tool, set_tracing_disabled
    from openai import AsyncOpenAI

    set_tracing_disabled(True)
    model = kind(MODEL, AsyncOpenAI(base_url=f"{root}/v1", api_key="k"))
    agent = Agent(
        name="adder",
        instructions=SYSTEM,
        model=model,
        tools=[function_tool(add)],
        output_type=Answer,
        model_settings=ModelSettings(tool_choice="required"),
    )
    return Runner.run_sync(agent, TASK).final_output.answer


def autogen(root: str) -> Any:
    from autogen_agentchat.agents import AssistantAgent
    from autogen_core.models import ModelInfo
    from autogen_core.tools import FunctionTool
    from autogen_ext.models.openai import OpenAIChatCompletionClient

    info = ModelInfo(
        vision=False, function_calling=True, json_output=True, family="unknown", structured_output=True
    )
    client = OpenAIChatCompletionClient(model=MODEL, base_url=f"{root}/v1", api_key="k", model_info=info)
    agent = AssistantAgent(
        "adder",
        client,
        tools=[FunctionTool(add, "Adds two numbers.", strict=True)],
        system_message=SYSTEM,
        output_content_type=Answer,
        max_tool_iterations=5,
    )
    message: Any = asyncio.run(agent.run(task=TASK)).messages[-1]
    return message.content.answer


if __name__ == "__main__":
    os.environ["HF_HUB_OFFLINE"] = "1"
    print(f"answer: {globals()[sys.argv[1]](sys.argv[2])}")
