"""A strict check of the RayJobs that are rendered, by the fields of KubeRay's API that they use.

No package index has KubeRay's schema (``ray.io_rayjobs.yaml``). The fields and types here are from its API reference,
https://github.com/ray-project/kuberay/blob/master/docs/reference/api.md; pod templates are Kubernetes' own, and are
checked by its published schema. With the variable ``AWORLD_TRAIN_TESTS_RAYJOB_CRD`` the tests check the published file
too.
"""

import os
import re
from collections.abc import Iterator, Mapping
from typing import Any

import jsonschema
import kubernetes_validate
import yaml

VERSIONS = ("1.30", "1.37")
"""Versions of Kubernetes whose schemas are used: the oldest and the newest that are of interest."""
CRD_VARIABLE = "AWORLD_TRAIN_TESTS_RAYJOB_CRD"
TEMPLATE = object()
JOB = {
    "entrypoint": str,
    "submissionMode": {"K8sJobMode", "HTTPMode", "InteractiveMode", "SidecarMode"},
    "shutdownAfterJobFinishes": bool,
    "ttlSecondsAfterFinished": int,
    "backoffLimit": int,
    "rayClusterSpec": {
        "rayVersion": re.compile(r"\d+\.\d+\.\d+"),
        "authOptions": {"mode": {"disabled", "token"}},
        "headGroupSpec": {"rayStartParams": Mapping, "template": TEMPLATE},
        "workerGroupSpecs": [
            {
                "groupName": re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?"),
                "replicas": int,
                "minReplicas": int,
                "maxReplicas": int,
                "rayStartParams": Mapping,
                "template": TEMPLATE,
            }
        ],
    },
}
"""The fields of a RayJob's ``spec``, all of which are required here."""


def problems(rendered: Mapping[str, Any]) -> list[str]:
    """What is wrong with an object; RayJobs by the table above, all others by the published schemas."""
    if rendered["kind"] != "RayJob":
        return list(_by_schema(rendered))
    mistakes = [] if rendered["apiVersion"] == "ray.io/v1" else ["apiVersion"]
    # A RayJob's name may have 47 characters (KubeRay's MaxRayJobNameLength).
    if not re.fullmatch(r"[a-z]([-a-z0-9]{0,45}[a-z0-9])?", rendered["metadata"]["name"]):
        mistakes.append("metadata.name")
    return [*mistakes, *_compare(rendered["spec"], JOB, "spec"), *_by_crd(rendered)]


def _compare(value: Any, expected: Any, place: str) -> Iterator[str]:
    if expected is TEMPLATE:
        pod = {"apiVersion": "v1", "kind": "Pod", **value}
        yield from (f"{place}: {problem}" for problem in _by_schema(pod))
    elif isinstance(expected, dict):
        if not isinstance(value, Mapping) or set(value) != set(expected):
            yield f"{place}: {sorted(set(expected) ^ set(value))}"
            return
        for name, inner in expected.items():
            yield from _compare(value[name], inner, f"{place}.{name}")
    elif isinstance(expected, list):
        for number, item in enumerate(value):
            yield from _compare(item, expected[0], f"{place}[{number}]")
    elif expected is Mapping:
        if not all(isinstance(entry, str) for entry in value.values()):
            yield f"{place}: values are texts"
    elif isinstance(expected, set):
        if value not in expected:
            yield f"{place}: {value!r}"
    elif isinstance(expected, re.Pattern):
        if not expected.fullmatch(value):
            yield f"{place}: {value!r}"
    elif type(value) is not expected:
        yield f"{place}: {value!r} is no {expected.__name__}"


def _by_schema(rendered: Mapping[str, Any]) -> Iterator[str]:
    for version in VERSIONS:
        try:
            kubernetes_validate.validate(dict(rendered), version, strict=True)
        except kubernetes_validate.ValidationError as error:
            yield f"{version}: {error.message}"


def _by_crd(rendered: Mapping[str, Any]) -> Iterator[str]:
    """What KubeRay's published file says, if there is one; unknown fields are errors."""
    file = os.environ.get(CRD_VARIABLE)
    if not file:
        return
    with open(file, encoding="utf-8") as stream:  # noqa: PTH123
        definition = yaml.load(stream, yaml.CSafeLoader)
    (schema,) = (
        version["schema"]["openAPIV3Schema"]
        for version in definition["spec"]["versions"]
        if version["name"] == "v1"
    )
    _make_strict(schema)
    schema["properties"]["metadata"] = {"type": "object"}
    for error in jsonschema.Draft202012Validator(schema).iter_errors(dict(rendered)):
        yield f"{error.json_path}: {error.message}"


def _make_strict(schema: Any) -> None:
    """Refuse fields that a schema does not name, and take numbers for texts where Kubernetes does."""
    if isinstance(schema, dict):
        if schema.get("x-kubernetes-int-or-string"):
            schema.pop("anyOf", None)
            schema["type"] = ["integer", "number", "string"]
        if "properties" in schema and "x-kubernetes-preserve-unknown-fields" not in schema:
            schema.setdefault("additionalProperties", False)
        for value in schema.values():
            _make_strict(value)
    elif isinstance(schema, list):
        for value in schema:
            _make_strict(value)
