"""The interpreter, and the installed packages beside what the package's metadata and constraints ask for."""

from collections.abc import Iterator
from pathlib import Path

from aworld_train.doctor.finding import Finding, fail, fault, listed, ok, warn
from aworld_train.doctor.machine import Machine, normalised
from aworld_train.doctor.needs import Needs

_PACKAGE = "aworld-train"
_PYTHONS = ((3, 11), (3, 12))


def check_python(machine: Machine, needs: Needs) -> Iterator[Finding]:
    version = ".".join(map(str, machine.python))
    if machine.python in _PYTHONS:
        yield ok("python", f"Python {version}.")
    else:
        yield fail(
            "python",
            f"Python {version} is not supported: it is 3.11 or 3.12.",
            "Make a virtual environment with one of these and install into it.",
        )


def check_packages(machine: Machine, needs: Needs) -> Iterator[Finding]:
    profile = profile_of(machine, needs)
    unmet = _unmet(machine, profile)
    if profile is None:
        yield fault(
            "packages",
            needs.trains,
            "No training profile is installed: there is no torch and no VeRL.",
            _install("cpu"),
        )
    if unmet:
        yield fail(
            "packages", f"Missing, or of a version that does not fit: {listed(unmet)}.", _install(profile)
        )
    others = _other_versions(machine, profile)
    if others:
        yield warn(
            "packages",
            f"{len(others)} versions are not those of requirements/{profile}.txt: {listed(others)}.",
            _install(profile),
        )
    if profile is not None and not unmet and not others:
        yield ok("packages", f"Profile {profile}: all packages have the versions that were tested.")


def profile_of(machine: Machine, needs: Needs) -> str | None:
    """The profile that the recipe needs, else the one that is installed: gpu, aworld, cpu, or None."""
    if needs.gpus or machine.version("vllm"):
        return "gpu"
    if machine.version("aworld"):
        return "aworld"
    return "cpu" if machine.version("verl") or machine.version("torch") else None


def _unmet(machine: Machine, profile: str | None) -> list[str]:
    """The package's own requirements that are not installed or have another version."""
    from packaging.requirements import Requirement

    own = machine.distribution(_PACKAGE)
    if own is None:
        return []
    extras = {"gpu": ["gpu"], "aworld": ["cpu", "aworld"], "cpu": ["cpu"]}.get(profile or "", [])
    unmet = []
    for requirement in map(Requirement, own.requires or []):
        marker = requirement.marker
        if marker is not None and not any(marker.evaluate({"extra": extra}) for extra in ["", *extras]):
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
    """Version by name, of a profile's file of constraints; empty without one."""
    file = _constraints() / f"{profile}.txt"
    lines = file.read_text(encoding="utf-8").splitlines() if file.is_file() else []
    pairs = [line.partition("==") for line in lines if not line.startswith("#")]
    return {normalised(name): version.strip() for name, _, version in pairs if version}


def _constraints() -> Path:
    package = Path(__file__).resolve().parent.parent
    inside = package / "_requirements"
    return inside if inside.is_dir() else package.parent / "requirements"


def _install(profile: str | None) -> str:
    extras = {"gpu": "[gpu]", "aworld": "[cpu,aworld]", "cpu": "[cpu]"}.get(profile or "", "")
    name = profile or "cpu"
    return (
        f"pip install -c {_constraints()}/{name}.txt 'aworld-train{extras}' (in a checkout: -e '.{extras}')"
    )
