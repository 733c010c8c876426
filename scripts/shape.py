#!/usr/bin/env python3
"""The shape of a Python package in figures: its lengths, types, docstrings and words, and which part imports which.

The source is parsed and never imported, so that a package is measured whether or not its dependencies are installed.
Every import counts, also one inside of a function or under TYPE_CHECKING, since a reader has to follow those too.
Main figures are printed beside those that CONTRIBUTING.md has, where ``--write`` puts them.

    python scripts/shape.py [FOLDER] [--json] [--write]
"""

import argparse
import ast
import json
import math
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

_WORDS = """
answered asked begun brought come gave given gone got heard here hers his meant mine ours overheard said saw says sought
spoken taken theirs there thing things told wanted wished yours
"""
VAGUE_NAMES = frozenset(_WORDS.split())
"""Names that tell the part a value plays in a sentence instead of what it holds."""

PHRASES = {
    "is no X": r"\bis no (?!longer\b)\w",
    "goes on": r"\b(?:go|goes|going) on\b",
    "stands": r"\bstands?\b",
    "so many": r"\bso many\b",
    "by itself": r"\bby itself\b",
    "somebody": r"\bsomebody\b",
}
"""Words that an engineer would seldom write, each as a pattern."""

PAGE = Path(__file__).resolve().parents[1] / "CONTRIBUTING.md"
BEGIN, END = "<!-- the table of scripts/shape.py -->\n", "<!-- the end of the shape -->\n"

MAX_MERGED_LINES = 60
"""A shorter file with one importer may belong to its importer."""

MAX_LISTED = 3
"""How many of the longest files and functions, and of the files with most vague names, are listed."""

Function = ast.FunctionDef | ast.AsyncFunctionDef
Graph = dict[str, set[str]]


@dataclass(frozen=True)
class Module:
    """One source file: ``name`` with dots and without the package's own, which is the name of the package itself."""

    name: str
    package: str
    is_package: bool
    path: str
    text: str
    tree: ast.Module

    @property
    def lines(self) -> int:
        return len(self.text.splitlines())


@dataclass(frozen=True)
class Measure:
    name: str
    size: int


@dataclass(frozen=True)
class Lengths:
    count: int
    median: int
    p90: int
    longest: list[Measure]


@dataclass(frozen=True)
class Share:
    part: int
    total: int


@dataclass(frozen=True)
class Shape:
    files: Lengths
    functions: Lengths
    folders: dict[str, int]
    docstrings: Share
    phrases: dict[str, int]
    raises: int
    single_importers: list[Measure]
    typed: Share
    documented: dict[str, Share]
    vague_names: dict[str, int]
    vague_files: list[Measure]
    repeated_classes: dict[str, list[str]]
    module_cycles: list[list[str]]
    folder_cycles: list[list[str]]
    framework_users: list[str]


def main() -> int:
    """2 if there is no Python file in the folder."""
    parser = argparse.ArgumentParser(description="The shape of a Python package in figures.")
    default = PAGE.parent / "aworld_train"
    parser.add_argument("folder", nargs="?", type=Path, default=default, help="the package (aworld_train)")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")
    parser.add_argument(
        "--framework",
        default="adapter.verl",
        help="the module that only its own folder should use (%(default)s)",
    )
    parser.add_argument("--write", action="store_true", help="put the main figures into CONTRIBUTING.md")
    options = parser.parse_args()
    modules = read_modules(options.folder)
    if not modules:
        sys.stderr.write(f"error: {options.folder} has no Python files. Name the folder of a package.\n")
        return 2
    shape = measure(modules, options.framework)
    recorded = recorded_figures() if options.folder == default else {}
    sys.stdout.write(json.dumps(asdict(shape), indent=2) + "\n" if options.json else table(shape, recorded))
    if options.write:
        record(main_figures(shape))
    return 0


def read_modules(folder: Path) -> list[Module]:
    folder = folder.resolve()
    return [_read_module(folder, path) for path in sorted(folder.rglob("*.py"))]


def _read_module(folder: Path, path: Path) -> Module:
    text = path.read_text(encoding="utf-8")
    parts = path.relative_to(folder).with_suffix("").parts
    is_package = parts[-1] == "__init__"
    return Module(
        name=".".join(parts[:-1] if is_package else parts) or folder.name,
        package=folder.name,
        is_package=is_package,
        path=path.relative_to(folder).as_posix(),
        text=text,
        tree=ast.parse(text, str(path)),
    )


def measure(modules: list[Module], framework: str) -> Shape:
    """All figures of ``modules``; ``framework`` is the module that only its own top folder should use."""
    functions = [(module, function) for module in modules for function in functions_of(module.tree)]
    methods = {function for module in modules for function in methods_of(module.tree)}
    vague = {module.path: vague_names(module.tree) for module in modules}
    imports = import_graph(modules)
    return Shape(
        files=lengths(Measure(module.path, module.lines) for module in modules),
        functions=lengths(Measure(f"{m.path}:{f.name}", _lines(f)) for m, f in functions),
        folders=folder_lines(modules),
        docstrings=Share(sum(map(docstring_lines, modules)), sum(module.lines for module in modules)),
        phrases={name: occurrences(pattern, modules) for name, pattern in PHRASES.items()},
        raises=occurrences(r"(?m)^ *Raises:$", modules),
        single_importers=single_importers(modules, imports),
        typed=_share(_is_typed(function, methods) for _, function in functions),
        documented=documented(modules),
        vague_names=dict(sum(vague.values(), Counter[str]()).most_common()),
        vague_files=_largest(Measure(path, found.total()) for path, found in vague.items() if found),
        repeated_classes=repeated_classes(modules),
        module_cycles=cycles(imports),
        folder_cycles=cycles(folder_graph(imports)),
        framework_users=framework_users(modules, imports, framework),
    )


def folder_lines(modules: list[Module]) -> dict[str, int]:
    """Lines by top folder; a module outside of them counts under the package's own name."""
    lines: Counter[str] = Counter()
    for module in modules:
        lines[module.path.split("/")[0] if "/" in module.path else module.package] += module.lines
    return dict(lines.most_common())


def docstring_lines(module: Module) -> int:
    """Lines of texts that are statements of their own: docstrings, and those behind constants and fields."""
    return sum(
        (node.end_lineno or node.lineno) - node.lineno + 1
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )


def occurrences(pattern: str, modules: list[Module]) -> int:
    return sum(len(re.findall(pattern, module.text)) for module in modules)


def single_importers(modules: list[Module], imports: Graph) -> list[Measure]:
    """Short files that only one other imports, with their lines."""
    importers = Counter(name for imported in imports.values() for name in imported)
    return [
        Measure(module.path, module.lines)
        for module in modules
        if not module.is_package and module.lines < MAX_MERGED_LINES and importers[module.name] == 1
    ]


def functions_of(tree: ast.AST) -> list[Function]:
    return [node for node in ast.walk(tree) if isinstance(node, Function)]


def methods_of(tree: ast.AST) -> set[Function]:
    """The functions whose first parameter is the object or the class, which needs no type."""
    return {
        item
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
        for item in node.body
        if isinstance(item, Function) and not _is_decorated(item, "staticmethod")
    }


def lengths(measures: Iterable[Measure]) -> Lengths:
    """The median and the 90th percentile (nearest rank), both 0 of nothing, and the longest."""
    ordered = list(measures)
    sizes = sorted(measure.size for measure in ordered)
    return Lengths(len(sizes), _percentile(sizes, 0.5), _percentile(sizes, 0.9), _largest(ordered))


def documented(modules: list[Module]) -> dict[str, Share]:
    """How many public modules, classes and functions have docstrings; of functions those in functions are left out."""
    public = [module for module in modules if not any(_is_private(part) for part in module.name.split("."))]
    nodes = [node for module in public for node in _public_definitions(module.tree.body)]
    return {
        "modules": _share(_has_docstring(module.tree) for module in public),
        "classes": _share(_has_docstring(node) for node in nodes if isinstance(node, ast.ClassDef)),
        "functions": _share(_has_docstring(node) for node in nodes if isinstance(node, Function)),
    }


def _public_definitions(body: list[ast.stmt]) -> Iterator[ast.ClassDef | Function]:
    for node in body:
        if isinstance(node, ast.ClassDef | Function) and not _is_private(node.name):
            yield node
            if isinstance(node, ast.ClassDef):
                yield from _public_definitions(node.body)


def vague_names(tree: ast.AST) -> Counter[str]:
    """How many functions have a local or a parameter of that name, for each name on the list that occurs."""
    return Counter(name for function in functions_of(tree) for name in bound_names(function) & VAGUE_NAMES)


def bound_names(function: Function) -> set[str]:
    """The parameters and locals of a function, without those of functions and classes in it."""
    names = set()
    for node in _own_nodes(function):
        if isinstance(node, ast.arg):
            names.add(node.arg)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        elif isinstance(node, ast.ExceptHandler | ast.MatchAs | ast.MatchStar) and node.name:
            names.add(node.name)
    return names


def _own_nodes(node: ast.AST) -> Iterator[ast.AST]:
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, Function | ast.ClassDef):
            yield child
            yield from _own_nodes(child)


def repeated_classes(modules: list[Module]) -> dict[str, list[str]]:
    places = defaultdict(list)
    for module in modules:
        for node in ast.walk(module.tree):
            if isinstance(node, ast.ClassDef):
                places[node.name].append(module.name)
    return {name: found for name, found in sorted(places.items()) if len(found) > 1}


def import_graph(modules: list[Module]) -> Graph:
    """For each module the modules of the package that it imports, wherever in the file."""
    names = {module.name for module in modules}
    return {module.name: set(_imports(module, names)) - {module.name} for module in modules}


def _imports(module: Module, names: set[str]) -> Iterator[str]:
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Import):
            targets = [alias.name.split(".") for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            targets = [[*_origin(module, node), alias.name] for alias in node.names]
        else:
            continue
        for target in targets:
            if target[0] == module.package and (found := _longest_known(target, names)):
                yield found


def _origin(module: Module, node: ast.ImportFrom) -> list[str]:
    """The absolute name, in parts, of what follows ``from``."""
    written = node.module.split(".") if node.module else []
    if not node.level:
        return written
    own = [] if module.name == module.package else module.name.split(".")
    up = node.level - module.is_package
    return [module.package, *own[: len(own) - up], *written]


def _longest_known(target: list[str], names: set[str]) -> str | None:
    """The module that ``target`` is or is in: of ``package.a.b.Thing`` it is ``a.b``."""
    for end in range(len(target), 1, -1):
        if (name := ".".join(target[1:end])) in names:
            return name
    return target[0] if target[0] in names else None


def folder_graph(imports: Graph) -> Graph:
    """The same imports between the package's top folders; a module outside of them stands for itself."""
    folders: Graph = defaultdict(set)
    for name, imported in imports.items():
        folder = name.split(".")[0]
        folders[folder] |= {other.split(".")[0] for other in imported} - {folder}
    return dict(folders)


def cycles(graph: Graph) -> list[list[str]]:
    """The strongly connected components of two nodes or more, largest first: each node reaches its others."""
    reached = {node: _reachable(graph, node) for node in graph}
    found = {
        frozenset(other for other in reached[node] if node in reached[other])
        for node in graph
        if node in reached[node]
    }
    return sorted((sorted(component) for component in found), key=lambda names: (-len(names), names))


def _reachable(graph: Graph, start: str) -> set[str]:
    found: set[str] = set()
    waiting = [start]
    while waiting:
        new = graph[waiting.pop()] - found
        found |= new
        waiting += new
    return found


def framework_users(modules: list[Module], imports: Graph, framework: str) -> list[str]:
    """The modules outside of the framework's top folder that import ``framework`` or have its name in a text."""
    folder = framework.split(".")[0]
    return [
        module.name
        for module in modules
        if module.name.split(".")[0] != folder
        and (any(_is_within(name, framework) for name in imports[module.name]) or _names(module, framework))
    ]


def _is_within(name: str, parent: str) -> bool:
    return name == parent or name.startswith(parent + ".")


def _names(module: Module, name: str) -> bool:
    return any(
        isinstance(node, ast.Constant) and isinstance(node.value, str) and name in node.value
        for node in ast.walk(module.tree)
    )


def _lines(function: Function) -> int:
    return (function.end_lineno or function.lineno) - function.lineno + 1


def _is_typed(function: Function, methods: set[Function]) -> bool:
    arguments = function.args
    positional = [*arguments.posonlyargs, *arguments.args][function in methods :]
    starred = [argument for argument in (arguments.vararg, arguments.kwarg) if argument]
    parameters = [*positional, *arguments.kwonlyargs, *starred]
    # What `__init__` returns goes without saying.
    returns = function.returns is not None or function.name == "__init__"
    return returns and all(parameter.annotation for parameter in parameters)


def _is_decorated(function: Function, name: str) -> bool:
    return any(isinstance(node, ast.Name) and node.id == name for node in function.decorator_list)


def _is_private(name: str) -> bool:
    return name.startswith("_") and name != "__main__"


def _has_docstring(node: ast.Module | ast.ClassDef | Function) -> bool:
    return ast.get_docstring(node) is not None


def _share(checks: Iterable[bool]) -> Share:
    results = list(checks)
    return Share(sum(results), len(results))


def _percentile(ordered: list[int], fraction: float) -> int:
    return ordered[math.ceil(fraction * len(ordered)) - 1] if ordered else 0


def _largest(measures: Iterable[Measure]) -> list[Measure]:
    return sorted(measures, key=lambda measure: (-measure.size, measure.name))[:MAX_LISTED]


def main_figures(shape: Shape) -> dict[str, str]:
    return {
        "lines": str(shape.docstrings.total),
        "docstrings": f"{shape.docstrings.part / shape.docstrings.total:.1%}",
        "sections `Raises:`": str(shape.raises),
        "files under 60 lines with one importer": str(len(shape.single_importers)),
        **{f'"{name}"': str(count) for name, count in shape.phrases.items()},
        **{f"lines of `{folder}`": str(lines) for folder, lines in shape.folders.items()},
    }


def recorded_figures() -> dict[str, str]:
    _, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    rows = (line.strip("| ").split(" | ") for line in rest.partition(END)[0].splitlines()[2:])
    return dict(rows)


def record(figures: dict[str, str]) -> None:
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    rows = "".join(f"| {name} | {value} |\n" for name, value in figures.items())
    table = f"| figure of the package | value |\n|---|---|\n{rows}"
    PAGE.write_text(f"{before}{BEGIN}{table}{END}{rest.partition(END)[2]}", encoding="utf-8")


def table(shape: Shape, recorded: dict[str, str]) -> str:
    rows = [
        *(
            (name, value if recorded.get(name, value) == value else f"{value} (was {recorded[name]})")
            for name, value in main_figures(shape).items()
        ),
        *_length_rows("files", shape.files),
        *_length_rows("functions", shape.functions),
        ("functions fully typed", _percent(shape.typed)),
        *((f"public {kind} with docstrings", _percent(share)) for kind, share in shape.documented.items()),
        ("vague names", _vague(shape)),
        ("  most in", _listed(shape.vague_files)),
        *_list_rows(
            "class names used more than once", [_repeated(item) for item in shape.repeated_classes.items()]
        ),
        *_list_rows("import cycles of modules", [" ".join(names) for names in shape.module_cycles]),
        *_list_rows("import cycles of folders", [" ".join(names) for names in shape.folder_cycles]),
        *_list_rows("modules that use the framework from outside", shape.framework_users),
    ]
    width = max(len(label) for label, _ in rows) + 2
    return "".join(f"{label:<{width}}{value}".rstrip() + "\n" for label, value in rows)


def _length_rows(kind: str, lengths: Lengths) -> list[tuple[str, str]]:
    summary = f"{lengths.count}; lines: median {lengths.median}, 90th percentile {lengths.p90}"
    return [(kind, summary), ("  longest", _listed(lengths.longest))]


def _list_rows(label: str, values: list[str]) -> list[tuple[str, str]]:
    return [(label, str(len(values))), *(("", value) for value in values)]


def _listed(measures: list[Measure]) -> str:
    return ", ".join(f"{measure.name} {measure.size}" for measure in measures) or "none"


def _percent(share: Share) -> str:
    return f"{share.part / share.total:.1%} of {share.total}" if share.total else "there are none"


def _vague(shape: Shape) -> str:
    names = ", ".join(f"{name} {count}" for name, count in shape.vague_names.items())
    return f"{sum(shape.vague_names.values())}" + (f": {names}" if names else "")


def _repeated(item: tuple[str, list[str]]) -> str:
    name, modules = item
    return f"{name}: {', '.join(modules)}"


if __name__ == "__main__":
    sys.exit(main())
