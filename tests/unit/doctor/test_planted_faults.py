"""Faults put into a machine are found: each row has the fault, and the finding that was not there before."""

import json
import re
import shutil
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from aworld_train.doctor import Finding, examine, network
from aworld_train.doctor.examination import PROBES
from tests.unit.doctor.world import QWEN3_8B, World, closed_port, hanging_file, http_server, new_world

GPU = "{index}, GPU-{index}, NVIDIA H100, 81559, {used}, {driver}"
FREE_GPU = GPU.format(index=0, used=0, driver="580.65")
ON_GPU: dict[str, Any] = {"rollout": {"engine": "vllm"}}
TOOLS: dict[str, Any] = {"env": {"docker_dir": "calculator-mcp-server", "backend": "docker"}}
DF = "echo 'Type 1B-blocks Avail Inodes IFree'; echo '{kind} {size} {free} {inodes} {free_inodes}'"
GB = 10**9
LONG = 60.0
KEYS = "CODE_LLM_BASE_URL=http://127.0.0.1:9\nCODE_LLM_API_KEY=sk-hidden\nCODE_LLM_MODEL_NAME=coder\n"


@dataclass(frozen=True)
class Fault:
    """A fault and the finding that it must make.

    Attributes:
        name: For people.
        plant: Puts the fault into the machine; a server lives until the end of the stack.
        area: The finding's area.
        status: Its status.
        what: A regular expression in its text.
        remedy: A regular expression in its remedy.
        recipe: Values of the recipe; None looks at the machine alone.
        before: Makes the machine in which there is no such finding yet.
        hangs: Whether it is found because a limit of time is over; all others have time enough on a busy machine.
    """

    name: str
    plant: Callable[[World, ExitStack], object]
    area: str
    status: str
    what: str
    remedy: str
    recipe: dict[str, Any] | None = field(default_factory=dict)
    before: Callable[[World], object] = lambda world: None
    hangs: bool = False


def df(
    kind: str = "ext4", size: int = 10**12, free: int = 10**11, inodes: int = 0, free_inodes: int = 0
) -> str:
    return DF.format(kind=kind, size=size, free=free, inodes=inodes, free_inodes=free_inodes)


def with_gpu(world: World) -> None:
    world.gpus(FREE_GPU)
    world.torch()


def docker_engine(world: World, stack: ExitStack, subnets: list[str]) -> None:
    # The path of a Unix socket has 107 characters at most.
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="aw-", dir="/tmp")))
    networks = [
        {"Id": str(n), "Name": f"n{n}", "IPAM": {"Config": [{"Subnet": s}]}} for n, s in enumerate(subnets)
    ]
    answers = {
        "/version": '{"ApiVersion": "1.45", "Version": "28.0.0"}',
        "/v1.45/info": json.dumps({"ServerVersion": "28.0.0", "DockerRootDir": "/var/lib/docker"}),
        "/v1.45/networks": json.dumps(networks),
    }
    world.variables["DOCKER_HOST"] = stack.enter_context(http_server(answers, path=folder / "docker.sock"))


def a_file(path: Path, text: str = "") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def endpoint(url: str = "http://127.0.0.1:9", **more: str) -> dict[str, Any]:
    judge = {"url": url, "model": "judge", **more}
    return {"endpoints": {"judge": judge}, "reward": {"judge": {"models": ["judge"]}}}


def environment_at(world: World, stack: ExitStack, skew: float) -> None:
    url = stack.enter_context(http_server({}, date=time.time() + skew))
    world.variables["MCP_SERVER_URL"] = url


def cluster(world: World, stack: ExitStack, token: str | None = "of-cluster", version: str = "2.9.3") -> None:
    answers = {"/api/version": json.dumps({"ray_version": version})}
    world.variables["RAY_ADDRESS"] = stack.enter_context(http_server(answers, token=token))
    world.variables["RAY_AUTH_TOKEN"] = "of-cluster"


DEAD_URL = f"http://127.0.0.1:{closed_port()}"
# fmt: off
FAULTS = [
    Fault("another Python", lambda w, s: setattr(w, "python", (3, 13)),
          "python", "fail", r"Python 3\.13 is not supported", "virtual environment"),
    Fault("no trainer", lambda w, s: shutil.rmtree(w.folder / "site"),
          "packages", "fail", "no torch and no VeRL", r"cpu\.txt",
          before=lambda w: w.package("verl", "0.9.1")),
    Fault("a requirement of another version", lambda w, s: w.package("verl", "0.8.0"),
          "packages", "fail", r"verl 0\.8\.0 \(needs ==0\.9\.1\)", "pip install -c",
          before=lambda w: w.package("aworld-train", "0.1.0", ('verl==0.9.1; extra == "cpu"',))),
    Fault("a version that was not tested", lambda w, s: w.package("ray", "2.40.0"),
          "packages", "warn", r"ray 2\.40\.0 \(2\.60\.0\)", r"requirements/cpu\.txt",
          before=lambda w: w.package("verl", "0.9.1")),
    Fault("packages without bytecode", lambda w, s: w.variables.update(PYTHONDONTWRITEBYTECODE="1"),
          "packages", "warn", "no compiled bytecode", "compileall",
          before=lambda w: (w.package("verl", "0.9.1"), (w.folder / "site" / "verl").mkdir())),
    Fault("vllm for another torch", lambda w, s: w.package("vllm", "0.24.0", ("torch==2.11.0",)),
          "wheels", "fail", r"vllm 0\.24\.0 needs torch==2\.11\.0, which is 2\.13\.0", "Install the profile anew",
          recipe=ON_GPU, before=lambda w: w.torch("2.13.0")),
    Fault("flash-attn for another torch", lambda w, s: w.package("flash_attn", "2.8.3+cu13torch2.8cxx11abiTRUE"),
          "wheels", "fail", r"built for torch 2\.8, and torch is 2\.11\.0", "flash-attn",
          recipe=ON_GPU, before=lambda w: w.torch()),
    Fault("flash-attn for another CUDA", lambda w, s: w.package("flash_attn", "2.8.3+cu12torch2.11cxx11abiTRUE"),
          "wheels", "fail", r"built for CUDA 12, and torch for CUDA 13\.0", "flash-attn",
          recipe=ON_GPU, before=lambda w: w.torch()),
    Fault("flash-attn with the old ABI", lambda w, s: w.package("flash_attn", "2.8.3+cu13torch2.11cxx11abiFALSE"),
          "wheels", "fail", r"old C\+\+ ABI", "flash-attn", recipe=ON_GPU, before=lambda w: w.torch()),
    Fault("a wheel for another Python", lambda w, s: w.package("vllm", "0.24.0", tag="cp39-cp39-linux_x86_64"),
          "wheels", "fail", "built for cp39-cp39-linux_x86_64", "for this Python", recipe=ON_GPU,
          before=lambda w: w.torch()),
    Fault("NCCL of another version", lambda w, s: w.package("nvidia_nccl_cu13", "2.27.3"),
          "wheels", "fail", r"needs nvidia-nccl-cu13==2\.28\.9, which is 2\.27\.3", "Install the profile anew",
          recipe=ON_GPU, before=lambda w: w.torch(requires=("nvidia-nccl-cu13==2.28.9",))),
    Fault("no GPU driver", lambda w, s: (w.folder / "bin/nvidia-smi").unlink(),
          "gpu", "fail", "needs 1 GPUs and nvidia-smi is missing", "--gpus all", recipe=ON_GPU, before=with_gpu),
    Fault("a driver that does not answer",
          lambda w, s: w.gpus(script="echo \"couldn't communicate with the NVIDIA driver\"; exit 9"),
          "gpu", "fail", "`nvidia-smi` ended with 9: couldn't communicate", "reinstall the NVIDIA driver",
          recipe=ON_GPU, before=with_gpu),
    Fault("a driver that hangs", lambda w, s: w.gpus(script="sleep 60"),
          "gpu", "warn", "`nvidia-smi` did not answer within", "by hand", recipe=ON_GPU, before=with_gpu, hangs=True),
    Fault("too few GPUs", lambda w, s: w.variables.update(CUDA_VISIBLE_DEVICES=""),
          "gpu", "fail", r"needs 1 GPUs and 0 can be used.*CUDA_VISIBLE_DEVICES is ''", "gpus_per_node",
          recipe=ON_GPU, before=with_gpu),
    Fault("a driver older than torch's CUDA",
          lambda w, s: w.gpus(GPU.format(index=0, used=0, driver="535.161")),
          "gpu", "fail", r"driver 535\.161 is too old for CUDA 13\.0", "Update", recipe=ON_GPU, before=with_gpu),
    Fault("torch without CUDA", lambda w, s: w.torch(cuda=None),
          "gpu", "fail", "build without CUDA", r"gpu\.txt", recipe=ON_GPU, before=with_gpu),
    Fault("a GPU in use", lambda w, s: w.gpus(GPU.format(index=0, used=60000, driver="580.65")),
          "gpu", "warn", r"use memory of GPU 0 \(62\.9 GB\)", "nvidia-smi", recipe=ON_GPU, before=with_gpu),
    Fault("a model larger than the GPUs", lambda w, s: w.model(16 * GB, **QWEN3_8B),
          "gpu", "warn", r"does not fit: 8\.2 billion parameters take 1\d\d\.\d GB", "LoRA", recipe=ON_GPU,
          before=with_gpu),
    Fault("NCCL on an interface that is not there", lambda w, s: w.variables.update(NCCL_SOCKET_IFNAME="ib0"),
          "gpu", "fail", "NCCL_SOCKET_IFNAME is 'ib0'", "eth0", recipe=ON_GPU,
          before=lambda w: (with_gpu(w), w.write("sys/class/net/eth0/mtu", "1500"))),
    Fault("a control group with little memory", lambda w, s: w.write("sys/fs/cgroup/job/memory.max", "1073741824"),
          "memory", "fail", r"1\.1 GB of memory \(the control group's limit\)", "--memory"),
    Fault("a control group of version 1 with little memory",
          lambda w, s: (w.write("proc/self/cgroup", "4:memory:/job\n"),
                        w.write("sys/fs/cgroup/memory/job/memory.limit_in_bytes", "1073741824")),
          "memory", "fail", r"1\.1 GB of memory \(the control group's limit\)", "--memory"),
    Fault("memory in use", lambda w, s: w.write("proc/meminfo", "MemTotal: 33554432 kB\nMemAvailable: 900000 kB\n"),
          "memory", "warn", r"922 MB of 34\.4 GB", "End other programs"),
    Fault("half a processor", lambda w, s: w.write("sys/fs/cgroup/job/cpu.max", "50000 100000"),
          "processors", "warn", r"may use 0\.5 of", "--cpus"),
    Fault("a full disk", lambda w, s: w.program("df", df(free=10**8)),
          "disk", "fail", r"100 MB are free for .*planted, and a run needs about 1\.\d GB", "keep fewer checkpoints"),
    Fault("no room for checkpoints", lambda w, s: (w.program("df", df(free=50 * GB)), w.model(16 * GB)),
          "disk", "fail", r"50\.0 GB are free .* needs about 513\.\d GB", "trainer.keep_checkpoints",
          recipe={"trainer": {"steps": 100}}),
    Fault("a disk too full for Ray", lambda w, s: w.program("df", df(free=40 * GB)),
          "disk", "warn", "is 96% full", "Free some"),
    Fault("no inodes", lambda w, s: w.program("df", df(inodes=10**6, free_inodes=12)),
          "disk", "fail", "only 12 more files", "quota"),
    Fault("/tmp without execution", lambda w, s: w.write("proc/mounts", "tmpfs /tmp tmpfs rw,noexec 0 0\n"),
          "disk", "warn", "mounted noexec", "TRITON_CACHE_DIR"),
    Fault("Docker's small /dev/shm", lambda w, s: w.program("df", df("tmpfs", 67108864, 67108864)),
          "shared memory", "fail", r"67 MB of 67 MB are free", "--shm-size",
          recipe=ON_GPU | {"cluster": {"gpus_per_node": 2}}),
    Fault("a file in the run folder's place", lambda w, s: a_file(w.work / "runs"),
          "run folder", "fail", "runs is a file", "--runs"),
    Fault("a home that cannot be written", lambda w, s: w.variables.update(HOME="/proc"),
          "home", "fail", "cannot be made: /proc cannot be written", "AWORLD_TRAIN_STATE"),
    Fault("a cache of models that cannot be written", lambda w, s: w.variables.update(HF_HOME="/proc/models"),
          "home", "warn", "cannot be fetched into /proc/models/hub: /proc cannot be written", "HF_HOME"),
    Fault("a SOCKS proxy", lambda w, s: w.variables.update(ALL_PROXY="socks5://me:secret@127.0.0.1:9"),
          "hub", "warn", "ALL_PROXY names a SOCKS proxy", "NO_PROXY"),
    Fault("a run folder on NFS", lambda w, s: w.program("df", df("nfs4")),
          "run folder", "warn", r"network file system \(nfs4\)", "mount it with locks"),
    Fault("few open files",
          lambda w, s: w.write("proc/self/limits", "Limit  Soft  Hard\nMax open files   256   4096  files\n"),
          "limits", "fail", "Only 256 files may be open", "ulimit -n 65536"),
    Fault("few processes in the control group", lambda w, s: w.write("sys/fs/cgroup/job/pids.max", "100"),
          "limits", "fail", "Only 100 processes may run in this control group", "--pids-limit"),
    Fault("few ports", lambda w, s: w.write("proc/sys/net/ipv4/ip_local_port_range", "40000\t40100\n"),
          "ports", "warn", "About 101 of 101 ports", "ip_local_port_range"),
    Fault("an environment that is gone", lambda w, s: w.variables.update(MCP_SERVER_URL=DEAD_URL),
          "ports", "fail", "No tool environment answers at 127.0.0.1", "env up"),
    Fault("an environment with another clock", lambda w, s: environment_at(w, s, 7200),
          "clock", "fail", r"clock of the tool environment is \+(7200|7199) s", "Synchronise"),
    Fault("no Docker engine", lambda w, s: w.variables.update(DOCKER_HOST="unix:///nowhere/docker.sock"),
          "docker", "fail", "No Docker engine answers at unix:///nowhere/docker.sock: No such file", "group `docker`",
          recipe=TOOLS),
    Fault("no addresses for networks",
          lambda w, s: docker_engine(w, s, [*(f"172.{n}.0.0/16" for n in range(17, 32)), "192.168.0.0/16"]),
          "docker", "fail", "addresses for 0 more networks", "network prune", recipe=TOOLS),
    Fault("a full disk of images", lambda w, s: (docker_engine(w, s, []), w.program("df", df(free=10**8))),
          "docker", "fail", r"100 MB are free for images and containers, in /var/lib/docker", "system prune",
          recipe=TOOLS),
    Fault("no browser", lambda w, s: (w.folder / "bin/chromium").unlink(),
          "tools", "fail", "No Chromium", "apt install chromium",
          recipe={"env": {"docker_dir": "gaia-mcp-server", "backend": "process"}},
          before=lambda w: w.program("chromium", "true")),
    Fault("a cluster that is gone", lambda w, s: w.variables.update(RAY_ADDRESS=DEAD_URL),
          "ray", "fail", rf"{DEAD_URL} does not answer \(ConnectError", "correct cluster.address",
          recipe={"cluster": {"launcher": "ray"}}),
    Fault("a cluster of the shell that is gone", lambda w, s: w.variables.update(RAY_ADDRESS=DEAD_URL),
          "ray", "warn", "does not answer: Connection refused", "correct cluster.address", recipe={}),
    Fault("a cluster that everybody may use", lambda w, s: cluster(w, s, token=None),
          "ray", "fail", "asks for no token", "with a token", recipe={"cluster": {"launcher": "ray"}}),
    Fault("a cluster with another token",
          lambda w, s: (cluster(w, s), w.variables.update(RAY_AUTH_TOKEN="of-another")),
          "ray", "fail", "does not accept the token", "cluster.address", recipe={"cluster": {"launcher": "ray"}}),
    Fault("a cluster with another Ray", cluster,
          "ray", "fail", r"runs Ray 2\.9\.3, and 2\.60\.0 is installed", r"ray==2\.9\.3",
          recipe={"cluster": {"launcher": "ray"}}, before=lambda w: w.package("ray", "2.60.0")),
    Fault("a session that a dead Ray left", lambda w, s: w.write("tmp/ray/session_2026_1_77/logs/a", ""),
          "ray", "warn", "1 sessions of Ray", r"rm -r .*session_2026_1_77"),
    Fault("no SLURM", lambda w, s: (w.folder / "bin/sinfo").unlink(),
          "slurm", "fail", "there is no `sinfo`", "login node", recipe={"cluster": {"launcher": "slurm"}},
          before=lambda w: (w.program("sinfo", "echo 'main up 2'"), w.program("squeue", ""))),
    Fault("a controller that does not answer",
          lambda w, s: w.program("sinfo", "echo 'slurm_load_partitions: Unable to contact' >&2; exit 1"),
          "slurm", "fail", "Unable to contact", "slurmctld", recipe={"cluster": {"launcher": "slurm"}}),
    Fault("a controller that hangs", lambda w, s: w.program("sinfo", "sleep 60"),
          "slurm", "warn", "`sinfo` did not answer within", "by hand", hangs=True),
    Fault("partitions that are down", lambda w, s: (w.program("sinfo", "echo 'main down 2'"), w.program("squeue", "")),
          "slurm", "fail", "No partition", "sinfo -R", recipe={"cluster": {"launcher": "slurm"}}),
    Fault("an allocation that is too large", lambda w, s: w.variables.update(SLURM_JOB_ID="7", SLURM_JOB_NUM_NODES="2"),
          "slurm", "warn", "has 2 nodes, and the recipe uses 1", "cluster.nodes=2"),
    Fault("an allocation that is too small", lambda w, s: w.variables.update(SLURM_JOB_ID="7", SLURM_GPUS_ON_NODE="1"),
          "slurm", "fail", "has 1 GPUs per node, and the recipe needs 4", "gpus_per_node=1",
          recipe=ON_GPU | {"cluster": {"gpus_per_node": 4}}),
    Fault("a token with a line break", lambda w, s: w.variables.update(HF_TOKEN="hf_secret\nhf_secret"),
          "hub", "warn", "token in HF_TOKEN has characters", "Copy it again"),
    Fault("offline, and the model not in the cache", lambda w, s: w.variables.update(HF_HUB_OFFLINE="1"),
          "model", "fail", "Qwen/Qwen3-4B .* HF_HUB_OFFLINE is set", "hf download Qwen/Qwen3-4B",
          recipe={"model": {"path": "Qwen/Qwen3-4B"}}),
    Fault("a name that the hub does not know",
          lambda w, s: w.variables.update(HF_ENDPOINT=s.enter_context(http_server({}))),
          "model", "fail", "answers 404", "Correct the name", recipe={"model": {"path": "Qwen/Qwen3-4B"}}),
    Fault("a model without weights", lambda w, s: (w.folder / "model/model.safetensors").unlink(),
          "model", "fail", "has no weights", "Copy or fetch"),
    Fault("a model that is not there", lambda w, s: (w.folder / "model").rename(w.folder / "moved"),
          "model", "fail", "No model at", "model.path"),
    Fault("an agent that lacks a package", lambda w, s: a_file(w.work / "agent.py", "import json, no_such_package"),
          "agent", "fail", r"agent\.py, line 1 imports 'no_such_package', which .* does not find", "pip install",
          recipe={"agent": {"command": ["python", "agent.py"]}},
          before=lambda w: a_file(w.work / "agent.py", "import json")),
    Fault("a dataset that is not there", lambda w, s: (w.work / "train.parquet").unlink(),
          "inputs", "fail", r"no train\.parquet \(dataset\.train\)", "dataset build",
          recipe={"dataset": {"train": "train.parquet"}}, before=lambda w: a_file(w.work / "train.parquet")),
    Fault("a dataset whose path reads as a reference",
          lambda w, s: ((w.work / "${x}").mkdir(), (w.work / "train.parquet").rename(w.work / "${x}/t"),
                        (w.work / "train.parquet").symlink_to("${x}/t")),
          "inputs", "fail", r"train\.parquet \(dataset\.train\) has '\$\{' in its path", "Move it",
          recipe={"dataset": {"train": "train.parquet"}}, before=lambda w: a_file(w.work / "train.parquet")),
    Fault("no key of a judge", lambda w, s: w.variables.pop("JUDGE_KEY"),
          "keys", "fail", "endpoint judge needs its key in JUDGE_KEY", "export JUDGE_KEY",
          recipe=endpoint(key_variable="JUDGE_KEY"), before=lambda w: w.variables.update(JUDGE_KEY="sk-secret")),
    Fault("no key of a tool server", lambda w, s: a_file(w.work / "keys.env"),
          "keys", "fail", "server intelligence-code-server is off without CODE_LLM_BASE_URL", "env_file",
          recipe={"env": {"docker_dir": "gaia-mcp-server", "servers": ["intelligence-code-server"],
                          "env_file": "keys.env"}},
          before=lambda w: a_file(w.work / "keys.env", KEYS)),
    Fault("no key of a tracker", lambda w, s: w.variables.pop("WANDB_API_KEY"),
          "keys", "warn", "there is no WANDB_API_KEY", "WANDB_MODE=offline",
          recipe={"trainer": {"loggers": ["wandb"]}},
          before=lambda w: (w.package("wandb", "0.20"), w.variables.update(WANDB_API_KEY="secret"))),
    Fault("a system file that hangs", lambda w, s: s.enter_context(hanging_file(w.root / "proc/meminfo")),
          "memory", "warn", "did not end within 2 s: something that it reads hangs", "does not answer",
          hangs=True),
]
# fmt: on


def findings(world: World, fault: Fault) -> list[Finding]:
    probes, needs = {fault.area: PROBES[fault.area]}, world.needs(fault.recipe)
    if fault.hangs:
        return examine(world.machine(), needs, probes)
    return examine(world.machine(LONG), needs, probes, probe_seconds=LONG, total_seconds=LONG)


def matching(fault: Fault, world: World) -> list[Finding]:
    return [
        finding
        for finding in findings(world, fault)
        if (finding.area, finding.status.value) == (fault.area, fault.status)
        and re.search(fault.what, finding.what)
        and re.search(fault.remedy, finding.remedy)
    ]


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_fault_is_found_that_was_not_there_before(
    fault: Fault, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = new_world(tmp_path)
    monkeypatch.chdir(world.work)
    # What is planted answers or refuses, however busy this machine is; nothing planted is waited for.
    monkeypatch.setattr(network, "_SECONDS", LONG)
    with ExitStack() as stack:
        fault.before(world)
        assert not matching(fault, world)
        fault.plant(world, stack)
        assert matching(fault, world), findings(world, fault)


def test_no_finding_shows_a_key(tmp_path: Path) -> None:
    world = new_world(tmp_path)
    world.variables |= {"HF_TOKEN": "hf_hidden\nx", "JUDGE_KEY": "sk-hidden\nx", "WANDB_API_KEY": "hidden"}
    shown = repr(examine(world.machine(), world.needs(endpoint(key_variable="JUDGE_KEY"))))
    assert "JUDGE_KEY" in shown
    assert "hidden" not in shown
