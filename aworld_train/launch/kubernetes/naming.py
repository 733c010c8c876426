"""The names and labels of what a run has on a Kubernetes cluster."""

import hashlib
import re
from dataclasses import dataclass

RUN_LABEL = "aworld-train/run"
ROLE_LABEL = "aworld-train/role"
_HASH_CHARS = 6
_MAX_CHARS = 40  # a RayJob's name may have 47 characters (KubeRay), and suffixes are added to this one


@dataclass(frozen=True)
class RunNames:
    """The names of one run's objects; ``run`` is the RayJob's, and the value of every object's label."""

    run: str
    namespace: str

    @property
    def job_config(self) -> str:
        return f"{self.run}-job"

    @property
    def variables(self) -> str:
        return f"{self.run}-env"

    @property
    def tools(self) -> str:
        return f"{self.run}-tools"

    def metadata(self, name: str, role: str) -> dict[str, object]:
        return {"name": name, "namespace": self.namespace, "labels": self.labels(role)}

    def labels(self, role: str) -> dict[str, str]:
        return {RUN_LABEL: self.run, ROLE_LABEL: role}


def names_of(recipe_name: str, namespace: str) -> RunNames:
    """The names for a run of this name, in the characters that Kubernetes allows (RFC 1035 labels).

    A name that has to be changed gets a part of its hash, so that `a_b` and `a.b` are two runs there too.
    """
    name = re.sub(r"[^a-z0-9]+", "-", recipe_name.lower()).strip("-")
    name = name if name[:1].isalpha() else f"run-{name}"
    name = name[:_MAX_CHARS].strip("-")
    if name != recipe_name:
        digest = hashlib.sha256(recipe_name.encode()).hexdigest()[:_HASH_CHARS]
        name = f"{name[: _MAX_CHARS - _HASH_CHARS - 1].strip('-')}-{digest}"
    return RunNames(name, namespace)
