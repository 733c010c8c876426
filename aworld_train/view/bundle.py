"""The page's modules as one script, for a file that is opened without a server.

Each module becomes a function that returns what it exports. This reads the few forms of ``import`` and ``export`` that
the files of this package have, and refuses any other.
"""

import re
from collections.abc import Mapping
from posixpath import dirname, join, normpath

_IMPORT = re.compile(
    r"""^import\s*(?:(\w+)|\{([^}]*)\})\s*from\s*["'](\.{1,2}/[\w./-]+)["'];?""", re.MULTILINE
)
_DECLARED = re.compile(r"^export (?=(?:async )?(?:function|const|let|class) (\w+))", re.MULTILINE)
_LISTED = re.compile(r"\bexport\s*\{([^}]*)\};?\s*$")
# One that begins a line; what is commented out exports nothing. A licence begins with /** and stays.
_COMMENT = re.compile(r"^/\*(?!\*).*?\*/", re.MULTILINE | re.DOTALL)
_UNREAD = re.compile(r"^\s*(?:import|export)\b", re.MULTILINE)


def bundled(files: Mapping[str, str], entry: str) -> str:
    """The module ``entry`` and all that it imports, as one classic script; ``files`` are sources by path."""
    names: dict[str, str] = {}
    parts: list[str] = []
    _add(files, entry, names, parts, ())
    return "'use strict';\n" + "".join(parts)


def _add(
    files: Mapping[str, str], path: str, names: dict[str, str], parts: list[str], above: tuple[str, ...]
) -> None:
    if path in above:
        raise ValueError(f"{path} imports itself: {' -> '.join((*above, path))}")
    source = _COMMENT.sub("", files[path])
    imported = {target: normpath(join(dirname(path), target)) for _, _, target in _IMPORT.findall(source)}
    for target in imported.values():
        if target not in names:
            _add(files, target, names, parts, (*above, path))
    exported = {name: name for name in _DECLARED.findall(source)}

    def collect(match: re.Match[str]) -> str:
        exported.update({outer: inner for inner, outer in _pairs(match[1])})
        return ""

    def bind(match: re.Match[str]) -> str:
        module = names[imported[match[3]]]
        if match[1]:
            return f"const {match[1]} = {module}.default;"
        return f"const {{{', '.join(f'{outer}: {inner}' for outer, inner in _pairs(match[2]))}}} = {module};"

    body = _LISTED.sub(collect, _DECLARED.sub("", _IMPORT.sub(bind, source)))
    if unread := _UNREAD.search(body):
        raise ValueError(
            f"{path} has an import or export that cannot be bundled: {body[unread.start() :][:80]!r}"
        )
    names[path] = f"module{len(names)}"
    returned = ", ".join(f"{outer}: {inner}" for outer, inner in exported.items())
    parts.append(
        f"// {path}\nconst {names[path]} = (() => {{\n{body.strip()}\nreturn {{{returned}}};\n}})();\n"
    )


def _pairs(listed: str) -> list[tuple[str, str]]:
    """``a, b as c`` as pairs of what comes before and after ``as``."""
    pairs = []
    for part in filter(None, map(str.strip, listed.split(","))):
        before, _, after = part.partition(" as ")
        pairs.append((before.strip(), after.strip() or before.strip()))
    return pairs
