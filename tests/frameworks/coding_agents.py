"""Coding agents from npm, with their default settings, against a scripted model behind the gateway.

The model reads a file, looks at a picture, sends a helper off and answers, by the tools that the agent offers. What
else an agent asks (a title, a summary, what to remember) is told from the task by its prompt.
"""

import asyncio
import fcntl
import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from aworld_train.episode.images import Image
from aworld_train.rollout.episode import EpisodeLimits
from aworld_train.rollout.model import SampledTokens, SamplingParams
from aworld_train.rollout.token_episode import TokenEpisode
from tests.aworld_environment import KEPT_IN
from tests.frameworks.episodes import call
from tests.gateways import MODEL, serving
from tests.templates import ScriptedModel, cut_up
from tests.vision import png

SECONDS = 240
_INSTALL_SECONDS = 600
_LIMITS = EpisodeLimits(60, 400_000, 800_000, SamplingParams(1.0, 1.0, -1))
_ASSISTANT = "<|im_start|>assistant\n"
TASK, HELP = "Do the quokka-task.", "Do the numbat-task."
NOTES, HELPED, ANSWER, ASIDE = "seven-wombats", "eight-numbats", "The answer is quokka.", "An aside."
Turn = str | Callable[[str], str]


@dataclass(frozen=True)
class CodingAgent:
    """A coding agent.

    Attributes:
        package: Its package with the version.
        program: Its program in the installed folder, as a pattern.
        arguments: Of the program for a prompt, by the address of a rollout.
        compacting: Of the programs that go on with the session in a shorter context, by the address.
        script: The model's turns; a turn may depend on what came after the one before.
        files: Its settings, which only say where the model is.
    """

    package: str
    program: str
    arguments: Callable[[str, str], list[str]]
    compacting: Callable[[str], Sequence[list[str]]]
    script: Sequence[Turn]
    files: Callable[[str], dict[str, Any]] = lambda root: {}


def _wait_for_helper(after: str) -> str:
    return call("multi_agent_v1__wait_agent", targets=re.findall(r"agent_id\W+([0-9a-f-]{36})", after)[-1:])


def _claude(prompt: str, *options: str) -> list[str]:
    return ["-p", prompt, "--permission-mode", "acceptEdits", "--allowedTools", "Bash,Read,Agent", *options]


def _codex(root: str, *prompt: str) -> list[str]:
    provider = f'{{name="g",base_url="{root}/v1",env_key="OPENAI_API_KEY",wire_api="responses"}}'
    where = ["-c", 'model_provider="g"', "-c", f"model_providers.g={provider}", "-m", MODEL]
    return ["exec", *where, "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox", *prompt]


AGENTS = {
    "claude": CodingAgent(
        "@anthropic-ai/claude-code@2.1.332",
        "node_modules/@anthropic-ai/claude-code-*/claude",
        lambda root, prompt: _claude(prompt),
        lambda root: [_claude("/compact", "--continue"), _claude("Go on.", "--continue")],
        (
            call("Bash", command="cat notes.txt", description="Read"),
            lambda after: call("Read", file_path=f"{_work(after)}/picture.png"),
            call("Agent", description="Help", prompt=HELP, subagent_type="general-purpose"),
            ANSWER,
        ),
    ),
    "codex": CodingAgent(
        "@openai/codex@0.171.0",
        "node_modules/@openai/codex-*/vendor/*/bin/codex",
        _codex,
        lambda root: [
            _codex(root, "-c", "model_auto_compact_token_limit=1000", "resume", "--last", "Go on.")
        ],
        (
            call("exec_command", cmd="cat notes.txt"),
            lambda after: call("view_image", path="picture.png"),
            call("multi_agent_v1__spawn_agent", message=HELP),
            _wait_for_helper,
            ANSWER,
        ),
    ),
    "qwen": CodingAgent(
        "@qwen-code/qwen-code@0.24.4",
        "node_modules/.bin/qwen",
        lambda root, prompt: ["-p", prompt, "--yolo"],
        lambda root: [["-p", prompt, "--yolo", "--continue"] for prompt in ("/compress", "Go on.")],
        (
            call("run_shell_command", command="cat notes.txt; pwd", description="Read", is_background=False),
            lambda after: call("read_file", file_path=f"{_work(after)}/picture.png"),
            call("agent", description="Help", prompt=HELP, subagent_type="general-purpose"),
            ANSWER,
        ),
    ),
    "opencode": CodingAgent(
        "opencode-ai@1.18.33",
        "node_modules/opencode-*/bin/opencode",
        lambda root, prompt: ["run", "-m", f"g/{MODEL}", prompt],
        lambda root: [["run", "-m", f"g/{MODEL}", "--continue", "Go on."]],
        (
            call("bash", command="cat notes.txt; pwd", description="Read"),
            lambda after: call("read", filePath=f"{_work(after)}/picture.png"),
            call("task", description="Help", prompt=HELP, subagent_type="general"),
            ANSWER,
            call("bash", command="seq 1 5000", description="Count"),
        ),
        lambda root: {
            ".config/opencode/opencode.json": {
                "provider": {
                    "g": {
                        "npm": "@ai-sdk/openai-compatible",
                        "options": {"baseURL": f"{root}/v1", "apiKey": "k"},
                        "models": {MODEL: {"limit": {"context": 40_000, "output": 5_000}}},
                    }
                }
            }
        },
    ),
}
"""Coding agents by name."""


def _work(text: str) -> str:
    """The folder of the agent's work, as it was told of it."""
    return re.findall(r"/\S+/work\b", text)[-1]


def installed(agent: CodingAgent) -> Path:
    """The program of an agent, installed without its scripts and kept between runs."""
    if shutil.which("npm") is None:
        pytest.skip("npm is not installed here")
    kept = Path(os.environ.get(KEPT_IN) or Path.home() / ".cache/aworld-train/tests")
    folder = kept / ("npm-" + agent.package.replace("/", "-"))
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "complete").exists():
            options = ["--prefix", str(folder), "--ignore-scripts", "--no-audit", "--no-fund"]
            done = subprocess.run(
                ["npm", "install", *options, agent.package],
                capture_output=True,
                text=True,
                timeout=_INSTALL_SECONDS,
            )
            assert done.returncode == 0, done.stderr[-4000:]
            (folder / "complete").touch()
    return min(folder.glob(agent.program))


@dataclass
class CodingModel(ScriptedModel):
    """Answers the requests of a coding agent by what they ask.

    Attributes:
        script: Its turns in the task.
        sent: The turns that it has given in the task, in order.
    """

    script: Sequence[Turn] = ()
    sent: list[str] = field(default_factory=list)

    async def generate(
        self,
        request_id: str,
        tokens: list[int],
        sampling: SamplingParams,
        max_tokens: int,
        images: Sequence[Image] = (),
    ) -> SampledTokens:
        text = self._turn(self.tokenizer.decode(tokens))
        self.draw = lambda tokenizer: ([*cut_up(tokenizer, text, 1), tokenizer.eos_token_id], True)
        return await super().generate(request_id, tokens, sampling, max_tokens, images)

    def _turn(self, prompt: str) -> str:
        *before, after, _ = prompt.split(_ASSISTANT)
        is_new = not before
        kind = "aside"
        if is_new and "<tools>" in after:
            kind = "help" if HELP in after else "task" if TASK in after and not self.sent else "aside"
        elif not is_new and self.sent and self.sent[-1] in after and len(self.sent) < len(self.script):
            kind = "task"
        if kind != "task":
            return HELPED if kind == "help" else ASIDE
        turn = self.script[len(self.sent)]
        self.sent.append(turn if isinstance(turn, str) else turn(prompt))
        return self.sent[-1]


@dataclass(frozen=True)
class PlayedTask:
    """A task that was played: what the agent printed, its episode, and the model that it talked to."""

    printed: str
    episode: TokenEpisode
    model: CodingModel


async def play(agent: CodingAgent, program: Path, home: Path) -> PlayedTask:
    """Let an agent do the task in a home of its own, and go on in a shorter context."""
    model = CodingModel("chatml_tools", lambda _: ([], True), script=agent.script)
    episode = TokenEpisode(model, _LIMITS)
    work = home / "work"
    work.mkdir()
    (work / "notes.txt").write_text(NOTES)
    (work / "picture.png").write_bytes(png())
    printed = ""
    async with serving() as gateway:
        session = gateway.open_session(MODEL, episode.conversation, episode.rules)
        for name, settings in agent.files(session.root()).items():
            (home / name).parent.mkdir(parents=True)
            (home / name).write_text(json.dumps(settings))
        root = session.root()
        for arguments in (agent.arguments(root, TASK), *agent.compacting(root)):
            printed += await _run([str(program), *arguments], session, home)
    return PlayedTask(printed, episode, model)


async def _run(command: list[str], session: Any, home: Path) -> str:
    """Run a program with the variables that a program of a recipe has; what it printed."""
    url, key = session.address(), session.api_key()
    environment = {
        **{name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ},
        **{"HOME": str(home), "TMPDIR": str(home), "NO_PROXY": "127.0.0.1"},
        # Nothing outside is asked: of a version, a list of models, statistics.
        **dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY"), "http://127.0.0.1:9"),
        **{"OPENAI_BASE_URL": url, "OPENAI_API_KEY": key, "OPENAI_MODEL": MODEL},
        **{"ANTHROPIC_BASE_URL": session.root(), "ANTHROPIC_API_KEY": key, "ANTHROPIC_MODEL": MODEL},
    }
    program = await asyncio.create_subprocess_exec(
        *command,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        env=environment,
        cwd=home / "work",
    )
    try:
        async with asyncio.timeout(SECONDS):
            printed, _ = await program.communicate()
    finally:
        if program.returncode is None:
            program.kill()
            await program.wait()
    return printed.decode()
