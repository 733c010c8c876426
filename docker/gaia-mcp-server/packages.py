"""What the image needs for some of the servers, or, if none are named, for all: ``packages.py apt|pip [SERVER,...]``.

Debian packages are listed in ``apt.txt``, below a comment that names their servers and may say after a colon what for.
Python packages are in ``pyproject.toml``: what all share, and what one server alone needs as an extra of its name.
"""

import sys
import tomllib
from pathlib import Path

HERE = Path(__file__).parent


def debian(servers: set[str]) -> list[str]:
    """Names of Debian packages."""
    selected, found = False, []
    for line in (HERE / "apt.txt").read_text(encoding="utf-8").splitlines():
        if line.startswith("#"):
            named = {name.strip() for name in line[1:].partition(":")[0].split(",")}
            selected = not servers or bool(named & servers)
        elif line.strip() and selected:
            found.append(line.strip())
    return found


def python(servers: set[str]) -> list[str]:
    """Requirements of Python packages."""
    project = tomllib.loads((HERE / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    own = [one for server in extras if not servers or server in servers for one in extras[server]]
    return [*project["dependencies"], *own]


if __name__ == "__main__":
    kind, *named = sys.argv[1:]
    servers = {name.strip() for name in ",".join(named).split(",") if name.strip()}
    sys.stdout.write("\n".join({"apt": debian, "pip": python}[kind](servers)) + "\n")
