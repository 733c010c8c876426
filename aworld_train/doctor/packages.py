"""The interpreter, and the installed packages beside what the package asks for and what wheels were built for."""

import json
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from packaging.requirements import Requirement
from packaging.tags import parse_tag, sys_tags
from packaging.utils import canonicalize_name

from aworld_train.doctor.finding import Finding, fail, fault, listed, ok, warn
from aworld_train.doctor.machine import Machine
from aworld_train.doctor.needs import Needs

_PACKAGE = "aworld-train"
_PYTHONS = ((3, 11), (3, 12))
_EXTRAS = {"gpu": ["gpu"], "aworld": ["cpu", "aworld"], "cpu": ["cpu"]}
"""By profile."""


def check_python(machine: Machine, needs: Needs) -> Iterator[Finding]:
    version = ".".join(map(str, machine.python))
    if machine.python in _PYTHONS:
        yield ok(f"Python {version}.")
    else:
        yield fail(
            f"Python {version} is not supported: it is 3.11 or 3.12.",
            "Make a virtual environment with one of these and install into it.",
        )


def check_packages(machine: Machine, needs: Needs) -> Iterator[Finding]:
    profile = profile_of(machine, needs)
    unmet = _unmet(machine, profile)
    if profile is None:
        yield fault(
            needs.trains, "No training profile is installed: there is no torch and no VeRL.", _install("cpu")
        )
    if unmet:
        yield fail(f"Missing, or of a version that does not fit: {listed(unmet)}.", _install(profile))
    others = _other_versions(machine, profile)
    if others:
        yield warn(
            f"{len(others)} versions are not those of requirements/{profile}.txt: {listed(others)}.",
            _install(profile),
        )
    if folder := _uncompiled(machine):
        yield warn(
            "The packages have no compiled bytecode and cannot get any (PYTHONDONTWRITEBYTECODE, or a folder that "
            "cannot be written), so each process of a run compiles them again: a minute or so of every start.",
            f"{sys.executable} -m compileall -q {folder}",
        )
    if profile is not None and not unmet and not others:
        yield ok(f"Profile {profile}: all packages have the versions that were tested.")


def _uncompiled(machine: Machine) -> Path | None:
    """The folder of packages that stay without bytecode: on an H200 a start took 263 s, and another's 176 s with it."""
    installed = machine.packages.get("verl")
    package = installed[1].parent / "verl" if installed else None
    if package is None or not package.is_dir() or any(package.glob("__pycache__/*.pyc")):
        return None
    may_write = os.access(package, os.W_OK) and not machine.variable("PYTHONDONTWRITEBYTECODE")
    return None if may_write else package.parent


def profile_of(machine: Machine, needs: Needs) -> str | None:
    """The profile that the recipe needs, else the one that is installed: gpu, aworld, cpu, or None."""
    if needs.gpus or machine.version("vllm"):
        return "gpu"
    if machine.version("aworld"):
        return "aworld"
    return "cpu" if machine.version("verl") or machine.version("torch") else None


def _unmet(machine: Machine, profile: str | None) -> list[str]:
    own = machine.distribution(_PACKAGE)
    if own is None:
        return []
    extras = ["", *_EXTRAS.get(profile or "", [])]
    unmet = []
    for requirement in map(Requirement, own.requires or []):
        marker = requirement.marker
        if marker is not None and not any(marker.evaluate({"extra": extra}) for extra in extras):
            continue
        version = machine.version(requirement.name)
        if version is None:
            unmet.append(f"{requirement.name} (not installed)")
        elif not requirement.specifier.contains(version, prereleases=True):
            unmet.append(f"{requirement.name} {version} (needs {requirement.specifier})")
    return unmet


def _other_versions(machine: Machine, profile: str | None) -> list[str]:
    others = []
    for name, pinned in _pins(profile).items():
        version = machine.version(name)
        if version is not None and version.partition("+")[0] != pinned.partition("+")[0]:
            others.append(f"{name} {version} ({pinned})")
    return others


def _pins(profile: str | None) -> dict[str, str]:
    file = _constraints() / f"{profile}.txt"
    lines = file.read_text(encoding="utf-8").splitlines() if file.is_file() else []
    pairs = [line.partition("==") for line in lines if not line.startswith("#")]
    return {canonicalize_name(name): version.strip() for name, _, version in pairs if version}


def _constraints() -> Path:
    package = Path(__file__).resolve().parent.parent
    inside = package / "_requirements"
    return inside if inside.is_dir() else package.parent / "requirements"


def _install(profile: str | None) -> str:
    extras = f"[{','.join(_EXTRAS[profile])}]" if profile else ""
    name = profile or "cpu"
    return (
        f"pip install -c {_constraints()}/{name}.txt 'aworld-train{extras}' (in a checkout: -e '.{extras}')"
    )


_COMPILED = ("torch", "vllm", "flash-attn", "flashinfer-python", "xformers", "torchvision", "torchaudio")
_BUILT_FOR_TORCH = re.compile(r"torch(\d+\.\d+)")
_BUILT_FOR_CUDA = re.compile(r"[+]cu(\d\d)")
_OLD_ABI = "cxx11abiFALSE"
# "PyTorch 2.7 Release": Linux wheels of all CUDA versions are built with the new ABI since then.
_NEW_ABI_SINCE = (2, 7)
_REINSTALL = (
    "Install the profile anew with its constraints, or the wheel of {} for this Python, torch and CUDA."
)


def check_wheels(machine: Machine, needs: Needs) -> Iterator[Finding]:
    faults = 0
    for name in _COMPILED:
        for what in _mismatches(machine, name):
            faults += 1
            needed = needs.trains and (name == "torch" or needs.gpus > 0)
            yield fault(needed, what, _REINSTALL.format(name))
    if not faults:
        installed = [f"{name} {machine.version(name)}" for name in _COMPILED if machine.version(name)]
        yield ok(f"Fit together: {', '.join(installed)}." if installed else "None is installed.")


def cuda_of_torch(machine: Machine) -> str | None:
    """The CUDA version that torch is built for, such as 13.0; None for a build without CUDA, and without torch."""
    installed = machine.packages.get("torch")
    if installed is None:
        return None
    file = installed[1].parent / "torch" / "version.py"
    text = file.read_text(encoding="utf-8") if file.is_file() else ""
    match = re.search(r"^cuda\b.*=\s*['\"]([\d.]+)['\"]", text, re.MULTILINE)
    return match[1] if match else None


def _mismatches(machine: Machine, name: str) -> Iterator[str]:
    version = machine.version(name)
    if version is None:
        return
    yield from _other_python(machine, name, version)
    yield from _unmet_pins(machine, name, version)
    if name != "torch":
        yield from _other_build(machine, name, version)


def _other_python(machine: Machine, name: str, version: str) -> Iterator[str]:
    distribution = machine.distribution(name)
    lines = (distribution.read_text("WHEEL") or "").splitlines() if distribution else []
    tags = {tag for line in lines if line.startswith("Tag:") for tag in parse_tag(line[4:].strip())}
    if tags and tags.isdisjoint(sys_tags()):
        built = ", ".join(sorted(map(str, tags))[:2])
        yield f"{name} {version} is built for {built}, which this interpreter or system cannot load."


def _unmet_pins(machine: Machine, name: str, version: str) -> Iterator[str]:
    distribution = machine.distribution(name)
    for requirement in map(Requirement, (distribution.requires if distribution else None) or []):
        is_library = requirement.name == "torch" or requirement.name.startswith("nvidia-")
        if not is_library or (requirement.marker and not requirement.marker.evaluate({"extra": ""})):
            continue
        library = machine.version(requirement.name)
        if library is None or not requirement.specifier.contains(library, prereleases=True):
            installed = library or "not installed"
            yield f"{name} {version} needs {requirement.name}{requirement.specifier}, which is {installed}."


def _other_build(machine: Machine, name: str, version: str) -> Iterator[str]:
    """What the file name of a wheel says that it was built for, as flash-attn's does."""
    torch, cuda = machine.version("torch"), cuda_of_torch(machine)
    if torch is None:
        return
    built = f"{version} {_wheel_url(machine, name)}"
    if (match := _BUILT_FOR_TORCH.search(built)) and not torch.startswith(f"{match[1]}."):
        yield f"{name} {version} is built for torch {match[1]}, and torch is {torch}."
    if (match := _BUILT_FOR_CUDA.search(built)) and match[1] != (cuda or "none").partition(".")[0]:
        yield f"{name} {version} is built for CUDA {match[1]}, and torch for {f'CUDA {cuda}' if cuda else 'none'}."
    release = tuple(int(part) for part in re.findall(r"\d+", torch)[:2])
    if _OLD_ABI in built and release >= _NEW_ABI_SINCE:
        yield f"{name} {version} is built with the old C++ ABI ({_OLD_ABI}), and torch {torch} with the new one."


def _wheel_url(machine: Machine, name: str) -> str:
    distribution = machine.distribution(name)
    text = distribution.read_text("direct_url.json") if distribution else None
    try:
        return str(json.loads(text or "{}").get("url", ""))
    except ValueError:
        return ""
