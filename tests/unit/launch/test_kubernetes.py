"""What is rendered for Kubernetes: valid by the published schemas, isolated as with Docker, and without a secret."""

import json
import re
import subprocess
import sys
from copy import deepcopy
from pathlib import Path, PurePosixPath
from typing import Any

import pytest
import yaml

from aworld_train.adapter.episodes.files import write_files
from aworld_train.env import containers
from aworld_train.errors import UsageError
from aworld_train.launch.job import job_recipe
from aworld_train.launch.kubernetes import plan as plans
from aworld_train.launch.kubernetes.naming import names_of
from aworld_train.launch.kubernetes.plan import KubernetesPlan
from aworld_train.launch.kubernetes.tools import ToolSize
from aworld_train.recipe import read
from aworld_train.serving import tokens
from tests.rayjob_schema import problems

IMAGES = ["cluster.kubernetes.image=registry/train:1", "cluster.kubernetes.claim=shared"]
TOOLS = ["env.docker_dir=calculator-mcp-server", "cluster.kubernetes.env_image=registry/calculator:1"]
TOLERATIONS = "cluster.kubernetes.tolerations=[{key: gpu, operator: Exists, tolerationSeconds: 60}]"
CANARY = "canary-3f9a"


def plan(*overrides: str, name: str = "long", resume: bool = False, keys: Any = None) -> KubernetesPlan:
    loaded = read({"name": name, **(keys or {})}, ["cluster.launcher=kubernetes", *IMAGES, *overrides])
    return KubernetesPlan(loaded, PurePosixPath("/shared/runs", name), resume)


def by_kind(manifests: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return {item["kind"]: item for item in manifests}


@pytest.mark.parametrize(
    "overrides",
    [
        [],
        TOOLS,
        [*TOOLS, "env.workers=3", "env.scoring_workers=1"],
        [
            "cluster.nodes=4",
            "cluster.gpus_per_node=8",
            "cluster.kubernetes.cpus=32",
            "rollout.engine=vllm",
            "trainer.batch_size=64",
        ],
        ["cluster.kubernetes.node_selector={gpu: h200}", "cluster.kubernetes.namespace=lab"],
        [*TOOLS, TOLERATIONS, "cluster.kubernetes.pull_secrets=[registry]"],
    ],
    ids=["outside tools", "own tools", "more workers", "gpus", "selector", "private registry"],
)
def test_every_object_is_valid_by_the_published_schemas(overrides: list[str]) -> None:
    rendered = plan(*overrides)
    for item in [*rendered.manifests(), *rendered.secrets()]:
        assert problems(item) == [], item["kind"]


@pytest.mark.parametrize(
    ("kind", "path", "value"),
    [
        ("RayJob", ["spec", "entryPoint"], "x"),
        ("RayJob", ["spec", "backoffLimit"], "0"),
        ("RayJob", ["spec", "submissionMode"], "JobMode"),
        ("RayJob", ["spec", "rayClusterSpec", "headGroupSpec", "rayStartParams", "num-gpus"], 0),
        ("RayJob", ["spec", "rayClusterSpec", "headGroupSpec", "template", "spec", "container"], []),
        ("RayJob", ["metadata", "name"], "My_Job"),
        ("Deployment", ["spec", "template", "spec", "automountToken"], False),
        ("Deployment", ["spec", "replicas"], "1"),
        ("NetworkPolicy", ["spec", "policyType"], ["Egress"]),
        ("Service", ["spec", "ports"], "8080"),
        ("ConfigMap", ["data", "number"], 1),
    ],
)
def test_the_check_finds_a_mistake(kind: str, path: list[str], value: object) -> None:
    item = deepcopy(by_kind(plan(*TOOLS).manifests())[kind])
    section = item
    for key in path[:-1]:
        section = section[key]
    section[path[-1]] = value
    assert problems(item)


def test_the_head_checks_the_nodes_and_each_machine_of_the_recipe_is_a_pod_with_its_gpus() -> None:
    rendered = plan(
        *("cluster.nodes=2", "cluster.gpus_per_node=8", "cluster.kubernetes.cpus=48", "rollout.engine=vllm"),
        resume=True,
    )
    kinds = by_kind(rendered.manifests())
    assert set(kinds) == {"ConfigMap", "RayJob"}
    spec = kinds["RayJob"]["spec"]
    job = json.loads(kinds["ConfigMap"]["data"]["job.json"])
    assert spec["entrypoint"] == (
        f"python -P -m aworld_train.launch.cluster_job /etc/aworld-train/job.json {job['nonce']}"
    )
    assert (job["run_dir"], job["directory"]) == ("/shared/runs/long", "/shared")
    assert job["arguments"] == [
        *("train", "/etc/aworld-train/recipe.yaml", "--runs", "/shared/runs"),
        *("--launcher", "kubernetes", "--resume"),
    ]
    (workers,) = spec["rayClusterSpec"]["workerGroupSpecs"]
    assert (workers["replicas"], workers["rayStartParams"]) == (2, {"num-gpus": "8"})
    (container,) = workers["template"]["spec"]["containers"]
    assert container["resources"]["limits"] == {"cpu": 48, "memory": "64Gi", "nvidia.com/gpu": 8}
    assert container["resources"]["requests"] == container["resources"]["limits"]
    mounts = {mount["mountPath"]: mount["name"] for mount in container["volumeMounts"]}
    assert mounts == {"/shared": "runs", "/dev/shm": "shm"}
    volumes = {volume["name"]: volume for volume in workers["template"]["spec"]["volumes"]}
    assert volumes["runs"]["persistentVolumeClaim"] == {"claimName": "shared"}
    assert volumes["shm"]["emptyDir"] == {"medium": "Memory", "sizeLimit": "16Gi"}
    assert spec["rayClusterSpec"]["authOptions"] == {"mode": "token"}


def test_a_recipe_without_gpus_asks_kubernetes_for_none_and_ray_for_logical_ones() -> None:
    (workers,) = by_kind(plan().manifests())["RayJob"]["spec"]["rayClusterSpec"]["workerGroupSpecs"]
    (container,) = workers["template"]["spec"]["containers"]
    assert set(container["resources"]["limits"]) == {"cpu", "memory"}
    assert workers["rayStartParams"] == {"num-gpus": "1"}


def test_no_pod_has_a_token_of_its_service_account_or_may_gain_privileges() -> None:
    kinds = by_kind(plan(*TOOLS).manifests())
    cluster = kinds["RayJob"]["spec"]["rayClusterSpec"]
    pods = [
        kinds["Deployment"]["spec"]["template"]["spec"],
        cluster["headGroupSpec"]["template"]["spec"],
        cluster["workerGroupSpecs"][0]["template"]["spec"],
    ]
    for pod in pods:
        assert pod["automountServiceAccountToken"] is False
        for container in [*pod["containers"], *pod.get("initContainers", [])]:
            rights = container["securityContext"]
            assert rights["allowPrivilegeEscalation"] is False
            assert rights["capabilities"]["drop"] == ["ALL"]
            assert rights["seccompProfile"] == {"type": "RuntimeDefault"}
            assert {"cpu", "memory"} <= set(container["resources"]["limits"])


def test_pods_write_a_claim_of_root_pull_from_a_private_registry_and_stand_taints() -> None:
    kinds = by_kind(plan(*TOOLS, TOLERATIONS, "cluster.kubernetes.pull_secrets=[registry]").manifests())
    cluster = kinds["RayJob"]["spec"]["rayClusterSpec"]
    head = cluster["headGroupSpec"]["template"]["spec"]
    trainer = cluster["workerGroupSpecs"][0]["template"]["spec"]
    tools = kinds["Deployment"]["spec"]["template"]["spec"]
    assert all(pod["imagePullSecrets"] == [{"name": "registry"}] for pod in (head, trainer, tools))
    for pod in (head, trainer):
        assert pod["securityContext"] == {"fsGroup": 1000, "fsGroupChangePolicy": "OnRootMismatch"}
    assert trainer["tolerations"] == [{"key": "gpu", "operator": "Exists", "tolerationSeconds": 60}]
    assert "tolerations" not in head and "tolerations" not in tools


def test_workers_are_isolated_as_dockers_are() -> None:
    pod = by_kind(plan(*TOOLS, "env.workers=2").manifests())["Deployment"]["spec"]["template"]["spec"]
    assert not any(pod[key] for key in ("hostNetwork", "hostPID", "hostIPC", "shareProcessNamespace"))
    containers_by_name = {container["name"]: container for container in pod["containers"]}
    assert set(containers_by_name) == {"gateway", "worker-0", "worker-1"}
    gateway = containers_by_name["gateway"]["securityContext"]
    assert (gateway["runAsUser"], gateway["runAsNonRoot"]) == (containers.USER, True)
    assert "add" not in gateway["capabilities"]
    users, sockets = set(), set()
    for name in ("worker-0", "worker-1"):
        worker = containers_by_name[name]
        rights = worker["securityContext"]
        assert rights["readOnlyRootFilesystem"] is True
        assert rights["capabilities"]["add"] == containers.WORKER_CAPABILITIES
        settings = json.loads(
            next(entry["value"] for entry in worker["env"] if entry["name"] == "AWORLD_WORKER")
        )
        users.add(settings["user"]["id"])
        assert settings["user"]["max_processes"] < 512
        assert settings["egress"] is None
        mounts = {mount["mountPath"]: mount["name"] for mount in worker["volumeMounts"]}
        sockets |= {mount for path, mount in mounts.items() if path.startswith(containers.SOCKETS)}
        assert set(containers.WORKER_FOLDERS) < set(mounts)
    assert len(users) == len(sockets) == 2, "workers share no user and no socket"
    assert min(users) > 65_535
    volumes = {volume["name"]: volume["emptyDir"] for volume in pod["volumes"]}
    assert {volume["medium"] for volume in volumes.values()} == {"Memory"}
    assert volumes["workspace-0"]["sizeLimit"] == "1024Mi"
    (prepare,) = pod["initContainers"]
    owners = dict(json.loads(prepare["command"][-1]))
    assert {owners[f"/prepare/{number}/workspace"] for number in (0, 1)} == users
    assert prepare["securityContext"]["capabilities"]["add"] == ["CHOWN"]


def test_only_the_runs_own_pods_reach_the_tools_and_the_tools_reach_nothing() -> None:
    kinds = by_kind(plan(*TOOLS).manifests())
    policy = kinds["NetworkPolicy"]["spec"]
    pod_labels = kinds["Deployment"]["spec"]["template"]["metadata"]["labels"]
    assert policy["podSelector"] == {"matchLabels": pod_labels}
    assert policy["policyTypes"] == ["Ingress", "Egress"]
    assert policy["egress"] == []
    (rule,) = policy["ingress"]
    selector = rule["from"][0]["podSelector"]
    cluster = kinds["RayJob"]["spec"]["rayClusterSpec"]
    for group in (cluster["headGroupSpec"], cluster["workerGroupSpecs"][0]):
        labels = group["template"]["metadata"]["labels"]
        assert selector["matchLabels"].items() <= labels.items()
        assert labels["aworld-train/role"] in selector["matchExpressions"][0]["values"]
    assert rule["ports"] == [{"port": 8080, "protocol": "TCP"}]
    assert kinds["Service"]["spec"]["selector"] == pod_labels


def test_the_head_finds_the_tools_and_starts_none() -> None:
    kinds = by_kind(plan(*TOOLS, "env.workers=2").manifests())
    (head,) = kinds["RayJob"]["spec"]["rayClusterSpec"]["headGroupSpec"]["template"]["spec"]["containers"]
    variables = {entry["name"]: entry["value"] for entry in head["env"]}
    assert variables["MCP_SERVER_URL"] == "http://long-tools.default.svc:8080/mcp"
    assert head["envFrom"] == [{"secretRef": {"name": "long-env"}}]
    recipe = read(yaml.safe_load(kinds["ConfigMap"]["data"]["recipe.yaml"]), []).recipe
    assert (recipe.env.docker_dir, recipe.env.workers) == (None, None)


def test_no_file_holds_a_secret_and_the_secrets_hold_them_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", f"{CANARY}-hub")
    monkeypatch.setenv("SEARCH_KEY", f"{CANARY}-search")
    keys = {"agent": {"command": ["python", "agent.py"], "environment": {"SEARCH": "${oc.env:SEARCH_KEY}"}}}
    rendered = plan(*TOOLS, keys=keys)
    text = yaml.safe_dump_all(rendered.manifests())
    assert CANARY not in text
    trainer, tools = rendered.secrets()
    assert {"HF_TOKEN": f"{CANARY}-hub", "SEARCH_KEY": f"{CANARY}-search"}.items() <= trainer[
        "stringData"
    ].items()
    token, secret = trainer["stringData"]["MCP_SERVER_TOKEN"], tools["stringData"]["gateway-secret"]
    assert tokens.verify(secret, "long-tools", token)
    assert token not in text
    assert secret not in text
    kinds = by_kind(rendered.manifests())
    referenced = {
        entry["valueFrom"]["secretKeyRef"]["key"]
        for container in kinds["Deployment"]["spec"]["template"]["spec"]["containers"]
        for entry in container["env"]
        if "valueFrom" in entry
    }
    assert referenced == set(tools["stringData"])
    write_files(tmp_path, job_recipe(rendered.loaded))
    done = subprocess.run(
        [sys.executable, "-m", plans.__name__, str(tmp_path)], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    first, second = json.loads(done.stdout)["items"]
    assert first["stringData"]["HF_TOKEN"] == f"{CANARY}-hub"
    assert second["stringData"]["gateway-secret"] != secret


def test_keys_of_a_file_of_tool_servers_are_in_the_secret_of_the_tools_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("NOTES_KEY", f"{CANARY}-notes")
    entry = {"command": "npx", "args": ["p"], "env": {"KEY": "${NOTES_KEY}", "PAIR": "me:${NOTES_KEY}"}}
    file = tmp_path / "client.json"
    file.write_text(json.dumps({"mcpServers": {"notes": entry}}))
    with pytest.raises(UsageError, match=f"env build --mcp-servers {file}`"):
        plan(f"env.mcp_servers={file}").manifests()
    rendered = plan(f"env.mcp_servers={file}", TOOLS[1])
    assert CANARY not in yaml.safe_dump_all(rendered.manifests())
    trainer, tools = rendered.secrets()
    assert CANARY not in json.dumps(trainer)
    keys = {name: value for name, value in tools["stringData"].items() if CANARY in value}
    assert keys == {"NOTES_KEY": f"{CANARY}-notes", "NOTES_PAIR": f"me:{CANARY}-notes"}


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["cluster.kubernetes.image=null"], r"cluster\.kubernetes\.image not set"),
        (["cluster.kubernetes.claim=null"], r"cluster\.kubernetes\.claim not set"),
        (["cluster.gpus_per_node=8"], r"cpus is 16, and 8 GPU .* take 24"),
        ([TOOLS[0]], r"env_image is not set.*env build --docker-dir calculator-mcp-server"),
        ([*TOOLS, "env.data=."], r"env\.data is a folder of this machine"),
        (
            ["env.docker_dir=gaia-mcp-server", "env.servers=[wiki-server]", "cluster.kubernetes.env_image=x"],
            r"NetworkPolicy knows no names.*env\.egress=none",
        ),
    ],
)
def test_what_cannot_be_rendered_is_refused_with_what_to_do(overrides: list[str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        plan(*overrides).manifests()


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("long", "long"),
        ("My_Run.1", "my-run-1-[0-9a-f]{6}"),
        ("7b", "run-7b-[0-9a-f]{6}"),
        ("x" * 90, f"{'x' * 33}-[0-9a-f]{{6}}"),
    ],
)
def test_names_have_the_characters_that_kubernetes_allows(name: str, expected: str) -> None:
    names = names_of(name, "default")
    assert re.fullmatch(expected, names.run)
    assert len(names.tools) <= 63


def test_names_that_differ_in_other_characters_are_different_runs() -> None:
    assert len({names_of(name, "default").run for name in ("a_b", "a.b", "a-b", "A-b")}) == 4


def test_a_workers_memory_is_shared_out_among_its_folders() -> None:
    assert ToolSize(1.0, "4Gi").share(0.25) == "1024Mi"
    assert ToolSize(1.0, "512Mi").share(0.5) == "256Mi"
