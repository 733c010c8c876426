"""A program that trains an agent in the form that its argument names: `python forms.py FORM RUN_PATH`.

It has no main guard, as the programs in AWorld's documents: the processes of its run load what it defines all the same.
"""

import json
import sys
from pathlib import Path

from aworld.agents.llm_agent import Agent
from aworld.config.conf import AgentConfig
from aworld.core.agent.swarm import Swarm

from aworld_train.agent import AWorldAgentLoop, get_agent_tool_env_and_servers
from aworld_train.recipe.schema import AgentSection
from aworld_train.training import AgentTrainer

HERE = Path(__file__).resolve()
MODEL = {"llm_provider": "verl"}


def make(name: str, tools: bool = True) -> Agent:
    config, servers = get_agent_tool_env_and_servers() if tools else ({}, [])
    return Agent(
        name=name, system_prompt="", conf=AgentConfig(**MODEL), mcp_config=config, mcp_servers=servers
    )


def build() -> Agent:
    return make("solver")


class CalculatorLoop(AWorldAgentLoop):
    def build_agents(self) -> Agent:
        conf = AgentConfig(
            llm_base_url=self.get_llm_server_address(),
            llm_model_name=self.get_llm_server_model_name(),
            llm_api_key="dummy",
        )
        config, servers = get_agent_tool_env_and_servers()
        return Agent(name="solver", system_prompt="", conf=conf, mcp_config=config, mcp_servers=servers)


def reward(answer: str, ground_truth: str) -> float:
    """A scorer: the number alone counts."""
    return float(answer.strip() == ground_truth.strip())


def write(path: Path, text: str) -> str:
    path.write_text(text)
    return str(path)


form, run_path = sys.argv[1], Path(sys.argv[2])
run_path.mkdir(parents=True, exist_ok=True)
forms = {
    "agent": lambda: make("solver"),
    "swarm": lambda: Swarm(make("solver"), make("checker", tools=False)),
    "function": lambda: build,
    "class": lambda: CalculatorLoop,
    "file": lambda: f"{HERE}:build",
    "module": lambda: "forms:CalculatorLoop",
    "aworld-yaml": lambda: write(run_path / "team.yaml", "name: solver\nsystem_prompt: ''\ntools: true\n"),
    "section": lambda: AgentSection(builder=f"{HERE}:build"),
    "mapping": lambda: {"builder": f"{HERE}:build"},
    "section-file": lambda: write(run_path / "section.yaml", f"agent: {{builder: '{HERE}:build'}}\n"),
}
# Questions of the kind that the small model knows, so that many of its episodes reach the checker.
tasks = [{"query": f"What is {a}*{b}?", "answer": str(a * b)} for a in range(12, 18) for b in range(23, 26)]
trainer = AgentTrainer(
    agent=forms[form](),
    config=json.dumps(
        {
            "extends": "recipes/quickstart.yaml",
            "name": form,
            "env": {"docker_dir": None, "url": "${oc.env:MCP_SERVER_URL}"},
            "agent": {"max_turns": 4} | ({"trainable": ["solver"]} if form == "swarm" else {}),
            "dataset": {"max_prompt_tokens": 400},
            "rollout": {"n": 2, "max_response_tokens": 256},
            "trainer": {"steps": 2, "batch_size": 2, "microbatch_size": 4, "save_every": 2, "val_every": 0}
            | {"val_ends": False},
        }
    ),
    reward_func=reward,
    train_dataset=tasks,
    test_dataset=tasks[:2],
    run_path=str(run_path),
)
json.dump(trainer.train(quiet=True).to_json(), sys.stdout)
