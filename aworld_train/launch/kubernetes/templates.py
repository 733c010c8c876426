"""Fills the YAML templates of this folder."""

import json
from importlib.resources import files
from string import Template
from typing import Any

import yaml

from aworld_train.recipe.schema import KubernetesSection


def render(template: str, **values: Any) -> list[dict[str, Any]]:
    """The objects of a template; each ``$name`` stands for a value, which is written as JSON, a part of YAML."""
    text = Template((files("aworld_train.launch.kubernetes") / template).read_text(encoding="utf-8"))
    return list(
        yaml.safe_load_all(text.substitute({name: json.dumps(value) for name, value in values.items()}))
    )


def image_pull(section: KubernetesSection) -> dict[str, Any]:
    secrets = [{"name": name} for name in section.pull_secrets]
    return {"imagePullSecrets": secrets} if secrets else {}
