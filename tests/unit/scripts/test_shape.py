"""Each figure of ``scripts/shape.py``, on small packages for which it is counted by hand."""

import json
import re
import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import pytest
import shape

SCRIPT = Path(shape.__file__)


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """An empty folder that is called as a package would be."""
    folder = tmp_path / "shop"
    folder.mkdir()
    return folder


def write(package: Path, **files: str) -> None:
    """Write modules; in their names ``__`` stands between folders: ``store__goods``, ``store____init__``."""
    for name, text in files.items():
        path = package.joinpath(*re.split("(?<=[a-z])__(?=[a-z_])", name)).with_suffix(".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(dedent(text))


def measured(package: Path) -> shape.Shape:
    return shape.measure(shape.read_modules(package), "adapter.verl")


def test_files_are_counted_in_lines_with_the_longest_first(package: Path) -> None:
    write(package, a="x = 1\n", b="x = 1\n" * 5, c="x = 1\n" * 2, store__d="x = 1\n" * 9)
    files = measured(package).files
    assert (files.count, files.median, files.p90) == (4, 2, 9)
    assert files.longest == [
        shape.Measure("store/d.py", 9),
        shape.Measure("b.py", 5),
        shape.Measure("c.py", 2),
    ]


def test_lines_are_counted_by_folder_and_of_docstrings_apart(package: Path) -> None:
    write(package, a='"""One."""\nX = 1\n"""Two\nlines."""\n', store__b="x = 1\n")
    found = measured(package)
    assert found.folders == {"shop": 4, "store": 1}
    assert found.docstrings == shape.Share(3, 5)


def test_phrases_and_sections_of_errors_are_counted_wherever_they_are(package: Path) -> None:
    write(
        package,
        a='# It is no text, and is no longer one.\ndef f():\n    """Goes on.\n\n    Raises:\n    """\n',
    )
    assert measured(package).phrases["is no X"] == 1
    assert measured(package).phrases["stands"] == 0
    assert measured(package).raises == 1


def test_short_files_with_one_importer_are_listed(package: Path) -> None:
    write(
        package,
        main="from shop import long, shared, short\n",
        other="from shop import shared\n",
        short="x = 1\n",
        shared="x = 1\n",
        long="x = 1\n" * 60,
    )
    assert measured(package).single_importers == [shape.Measure("short.py", 1)]


def test_main_figures_stand_beside_those_of_the_page(
    package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"Before.\n{shape.BEGIN}{shape.END}After.\n")
    monkeypatch.setattr(shape, "PAGE", page)
    write(package, a="x = 1\n")
    shape.record(shape.main_figures(measured(package)))
    write(package, b="x = 1\n")
    assert re.search(
        "^lines +2 [(]was 1[)]$", shape.table(measured(package), shape.recorded_figures()), re.MULTILINE
    )
    assert page.read_text().startswith("Before.\n") and page.read_text().endswith("After.\n")


def test_functions_are_measured_from_def_to_their_last_line_nested_ones_too(package: Path) -> None:
    write(
        package,
        a="""
        class Cart:
            @property
            def total(self):
                return 0

        async def pay():
            def check():
                pass

            check()
        """,
    )
    functions = measured(package).functions
    assert functions.longest == [
        shape.Measure("a.py:pay", 5),
        shape.Measure("a.py:check", 2),
        shape.Measure("a.py:total", 2),
    ]
    assert (functions.count, functions.median, functions.p90) == (3, 2, 5)


def test_figures_of_a_package_without_functions_are_zero(package: Path) -> None:
    write(package, a="")
    assert measured(package).functions == shape.Lengths(0, 0, 0, [])
    assert measured(package).typed == shape.Share(0, 0)


@pytest.mark.parametrize(
    ("function", "typed"),
    [
        ("def f() -> None: ...", 1),
        ("def f(): ...", 0),
        ("def f(a) -> None: ...", 0),
        ("def f(a: int, /, b: int, *, c: int) -> None: ...", 1),
        ("def f(a: int, /, b: int, *, c) -> None: ...", 0),
        ("def f(*args, **kwargs: int) -> None: ...", 0),
        ("class C:\n    def f(self, a: int) -> None: ...", 1),
        ("class C:\n    def f(self, a) -> None: ...", 0),
        ("class C:\n    @staticmethod\n    def f(a) -> None: ...", 0),
        ("class C:\n    @classmethod\n    def f(cls) -> None: ...", 1),
    ],
)
def test_typed_is_a_function_whose_every_parameter_and_result_has_a_type(
    package: Path, function: str, typed: int
) -> None:
    (package / "a.py").write_text(function)
    assert measured(package).typed == shape.Share(typed, 1)


def test_docstrings_are_asked_of_what_is_public_and_not_within_a_function(package: Path) -> None:
    write(
        package,
        a='''
        """It has one."""

        class Cart:
            """It has one."""

            def total(self):
                """It has one."""

            def pay(self):
                def inner(): ...

            def _hidden(self): ...

        class _Hidden:
            def seen_by_nobody(self): ...

        class Bare: ...
        ''',
        _private="def f(): ...",
        b="",
    )
    assert measured(package).documented == {
        "modules": shape.Share(1, 2),
        "classes": shape.Share(1, 2),
        "functions": shape.Share(1, 2),
    }


@pytest.mark.parametrize(
    "body",
    [
        "said = 1",
        "a, (said, b) = c",
        "for said in a: ...",
        "[said for said in a]",
        "with a as said: ...",
        "if (said := 1): ...",
        "try: ...\n    except ValueError as said: ...",
        "match a:\n        case [said]: ...",
    ],
)
def test_a_local_on_the_list_is_counted_once_in_its_function_however_it_is_bound(
    package: Path, body: str
) -> None:
    (package / "a.py").write_text(f"def f():\n    {body}\n    said = 2\n")
    assert measured(package).vague_names == {"said": 1}


def test_parameters_are_locals_and_names_that_are_only_read_are_not(package: Path) -> None:
    write(
        package,
        a="""
        said = 1  # of the module, which is not a local

        def f(told, *, asked=said):
            def g(**theirs):
                return told
        """,
        b="def f(told): ...",
        c="def f(price): ...",
    )
    found = measured(package)
    assert found.vague_names == {"told": 2, "asked": 1, "theirs": 1}
    assert found.vague_files == [shape.Measure("a.py", 3), shape.Measure("b.py", 1)]


def test_a_class_name_with_two_owners_is_listed_with_both(package: Path) -> None:
    write(package, a="class Cart: ...\nclass Once: ...", store__b="def f():\n    class Cart: ...")
    assert measured(package).repeated_classes == {"Cart": ["a", "store.b"]}


@pytest.mark.parametrize(
    "line",
    [
        "import shop.store.goods",
        "import shop.store.goods as g",
        "from shop.store import goods",
        "from shop.store.goods import Apple",
        "from .goods import Apple",
        "from . import goods",
        "from ..store.goods import Apple",
        "def f():\n    from shop.store.goods import Apple",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from .goods import Apple",
    ],
)
def test_an_import_is_an_edge_however_and_wherever_it_is_written(package: Path, line: str) -> None:
    write(package, store____init__="", store__goods="import os, json.decoder")
    (package / "store/till.py").write_text(line)
    graph = shape.import_graph(shape.read_modules(package))
    assert graph == {"store": set(), "store.goods": set(), "store.till": {"store.goods"}}


def test_relative_imports_of_a_package_itself_start_at_its_own_folder(package: Path) -> None:
    write(
        package, __init__="", a="", store____init__="from . import goods\nfrom .. import a", store__goods=""
    )
    graph = shape.import_graph(shape.read_modules(package))
    assert graph["store"] == {"store.goods", "a"}


def test_a_name_from_a_package_that_is_no_module_is_an_edge_to_the_package(package: Path) -> None:
    write(package, __init__="VERSION = 1", a="from shop import VERSION\nimport shop")
    assert shape.import_graph(shape.read_modules(package))["a"] == {"shop"}


def test_cycles_are_components_and_not_every_walk_through_them() -> None:
    graph = {
        "a": {"b"},
        "b": {"c", "d"},
        "c": {"a"},
        "d": {"e"},
        "e": {"d"},
        "f": {"a", "f_only"},
        "f_only": set(),
    }
    assert shape.cycles(graph) == [["a", "b", "c"], ["d", "e"]]


def test_folders_can_be_in_a_cycle_whose_modules_are_not(package: Path) -> None:
    write(
        package,
        store__a="import shop.till.a",
        till__a="",
        till__b="def f():\n    import shop.store.b",
        store__b="import shop.store.c",
        store__c="import shop.alone",
        alone="",
    )
    found = measured(package)
    assert (found.module_cycles, found.folder_cycles) == ([], [["store", "till"]])


def test_users_of_the_framework_import_or_name_it_from_outside_its_folder(package: Path) -> None:
    write(
        package,
        adapter__verl____init__="",
        adapter__verl__run="",
        adapter__base="import shop.adapter.verl.run",
        a="def f():\n    from shop.adapter.verl import run",
        b="RUN = ['-m', 'shop.adapter.verl.run']",
        c="from shop.adapter import base  # not adapter.verl",
    )
    assert measured(package).framework_users == ["a", "b"]


def run(*arguments: str | Path) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([sys.executable, SCRIPT, *arguments], capture_output=True, text=True, timeout=60)


def test_table_and_json_have_the_same_figures(package: Path) -> None:
    write(package, a="import shop.b\ndef f(said): ...", b="import shop.a")
    figures = json.loads(run(package, "--json").stdout)
    assert figures["module_cycles"] == [["a", "b"]]
    assert figures["vague_names"] == {"said": 1}
    lines = [line.split(maxsplit=2) for line in run(package).stdout.splitlines()]
    assert ["vague", "names", "1: said 1"] in lines
    assert ["a", "b"] in lines


def test_a_folder_without_python_is_refused_with_one_line(package: Path) -> None:
    done = run(package)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"error: {package} has no Python files. Name the folder of a package.\n"
