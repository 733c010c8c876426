"""The model that is trained, on this machine or on the hub, its size, and how the hub is reached, without the token."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import httpx

from aworld_train.api_keys import bearer, can_be_sent
from aworld_train.doctor.finding import Finding, fail, ok, warn
from aworld_train.doctor.machine import Machine
from aworld_train.doctor.needs import Needs
from aworld_train.model.files import is_hub_name
from aworld_train.network import is_near

GB = 10**9
TRAINED_BYTES = 16
"""Of a trained parameter: weight, gradient and AdamW's two moments, in fp32."""
_WIDE = ("float32", "float")


def model_folder(machine: Machine, model: str) -> Path | None:
    """The folder of a model's files: its directory, or its snapshot in the hub's cache; None if there is none."""
    folder = machine.folder / Path(model).expanduser()
    if folder.is_dir():
        return folder
    snapshots = hub_cache(machine) / "--".join(("models", *model.split("/"))) / "snapshots"
    complete = [config.parent for config in snapshots.glob("*/config.json")]
    return max(complete, key=lambda path: path.stat().st_mtime, default=None)


def hub_cache(machine: Machine) -> Path:
    """The folder of models from the hub, as huggingface_hub chooses it."""
    if cache := machine.variable("HF_HUB_CACHE") or machine.variable("HUGGINGFACE_HUB_CACHE"):
        return Path(cache)
    return hub_home(machine) / "hub"


def hub_home(machine: Machine) -> Path:
    if home := machine.variable("HF_HOME"):
        return Path(home)
    return Path(machine.variable("XDG_CACHE_HOME") or machine.home() / ".cache") / "huggingface"


def weight_files(folder: Path) -> list[Path]:
    return [*folder.glob("*.safetensors")] or [*folder.glob("pytorch_model*.bin")]


def parameters(machine: Machine, needs: Needs) -> int:
    """How many parameters the recipe's model has; 0 if its files are not on this machine."""
    model = needs.recipe.model.location if needs.recipe is not None else None
    folder = model_folder(machine, model) if model else None
    if folder is None:
        return 0
    try:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return 0
    width = 4 if config.get("dtype", config.get("torch_dtype")) in _WIDE else 2
    return sum(file.stat().st_size for file in weight_files(folder)) // width


def gigabytes(size: float) -> str:
    return f"{size / GB:.1f} GB" if size >= GB else f"{size / 10**6:.0f} MB"


_HUB = "https://huggingface.co"
_SECONDS = 1.5
_TRUE = ("1", "ON", "YES", "TRUE")
_OFFLINE = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")


def check_hub(machine: Machine, needs: Needs) -> Iterator[Finding]:
    offline = _offline(machine)
    mode = f"offline ({offline})" if offline else "the hub may be asked"
    yield ok(f"Models are kept in {hub_cache(machine)}; {mode}.")
    for name in ("http_proxy", "https_proxy", "all_proxy"):
        for variable in (name, name.upper()):
            if machine.variable(variable).lower().startswith("socks"):
                yield warn(
                    f"{variable} names a SOCKS proxy, and only HTTP proxies are supported.",
                    "Set HTTP_PROXY and HTTPS_PROXY to an HTTP proxy and unset it, or add what is reached without a "
                    "proxy to NO_PROXY.",
                )
    token, source = _token(machine)
    if token and not can_be_sent(token):
        yield warn(
            f"The token in {source} has characters that cannot be sent.",
            "Copy it again, without line breaks or quotation marks.",
        )
    else:
        yield ok(f"There is a token ({source})." if token else "No token; models with a gate need one.")


def check_model(machine: Machine, needs: Needs) -> Iterator[Finding]:
    model = needs.recipe.model.location if needs.recipe is not None else None
    if model is None:
        yield ok("No recipe, so no model to look for.")
        return
    folder = model_folder(machine, model)
    if folder is not None:
        yield from _complete(model, folder)
    elif is_hub_name(model):
        yield _on_hub(machine, needs, model)
    else:
        yield fail(f"No model at {model}.", "Correct model.path, or make the model first.")


def _complete(model: str, folder: Path) -> Iterator[Finding]:
    if not (folder / "config.json").is_file():
        remedy = "Copy the whole model, or correct model.path."
        yield fail(f"{folder} is not a model's directory: it has no config.json.", remedy)
    elif not weight_files(folder):
        remedy = "Copy or fetch the model again; a fetch may have been interrupted."
        yield fail(f"{folder} has no weights (*.safetensors).", remedy)
    else:
        yield ok(f"{model} is on this machine, in {folder}.")


def _on_hub(machine: Machine, needs: Needs, model: str) -> Finding:
    missing = f"{model} is not a directory, and not in the cache {hub_cache(machine)}"
    fetch = (
        f"If it is a model of the hub: hf download {model}. If it is a folder: make it (aworld-train model tiny makes "
        "the quickstart's), or correct model.path."
    )
    if offline := _offline(machine):
        return fail(f"{missing}; {offline} is set, so it cannot be fetched.", fetch)
    endpoint = _endpoint(machine)
    if not is_near(endpoint) and not needs.online:
        return warn(f"{missing}; whether the hub has it was not asked (--online does).", fetch)
    try:
        status = _config_file("HEAD", machine, model).status_code
    except httpx.HTTPError as error:
        return fail(f"{missing}; {endpoint} does not answer: {str(error) or type(error).__name__}.", fetch)
    if status >= 400:
        return fail(
            f"{missing}; {endpoint} answers {status} for it.",
            "Correct the name, or accept the model's terms there and set HF_TOKEN.",
        )
    return ok(f"{model} will be fetched from {endpoint}.")


def hub_config(machine: Machine, needs: Needs) -> Mapping[str, Any] | None:
    """The hub's ``config.json`` of a model that is not here; None where the hub may not be asked, or has none."""
    model, endpoint = needs.recipe.model.location if needs.recipe else None, _endpoint(machine)
    if model is None or not is_hub_name(model) or model_folder(machine, model) is not None:
        return None
    if _offline(machine) or not (needs.online or is_near(endpoint)):
        return None
    try:
        answer = _config_file("GET", machine, model)
        config = answer.json() if answer.is_success else None
    except (httpx.HTTPError, ValueError):
        return None
    return config if isinstance(config, dict) else None


def _endpoint(machine: Machine) -> str:
    return (machine.variable("HF_ENDPOINT") or _HUB).rstrip("/")


def _config_file(method: str, machine: Machine, model: str) -> httpx.Response:
    (token, _), url = _token(machine), f"{_endpoint(machine)}/{model}/resolve/main/config.json"
    return httpx.request(
        method,
        url,
        headers=bearer(token if can_be_sent(token) else None),
        timeout=_SECONDS,
        trust_env=not is_near(url),
        follow_redirects=method == "GET",
    )


def _token(machine: Machine) -> tuple[str, str]:
    for name in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"):
        if token := machine.variable(name):
            return token, name
    file = Path(machine.variable("HF_TOKEN_PATH") or hub_home(machine) / "token")
    try:
        token = file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        return "", ""
    return token, str(file)


def _offline(machine: Machine) -> str:
    return next((name for name in _OFFLINE if machine.variable(name).upper() in _TRUE), "")
