"""What commands print in columns: whole cells that can be copied, at any width."""

import pytest
from rich.console import Console

from aworld_train.cli import console


@pytest.mark.parametrize("is_terminal", [False, True])
def test_a_narrow_terminal_has_fewer_columns_and_no_cell_is_cut_or_padded(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], is_terminal: bool
) -> None:
    monkeypatch.setattr(
        console, "out", Console(force_terminal=is_terminal, width=40, color_system=None, highlight=False)
    )
    path = "/a/path/" * 10
    rows = [("one", "1", "soon", path), ("two\n\x1b[31m", "1,234", "later", "[bold]")]
    console.print_table(("name", "count", "when", "path"), rows, optional=("when",))
    lines = capsys.readouterr().out.splitlines()
    shown = [f"{'name':<13}", "count", "when ", "path"], [f"{'one':<13}", "    1", "soon ", path]
    shown += (["two\\n\\x1b[31m", "1,234", "later", "[bold]"],)
    assert lines == ["  ".join(cells[:2] + cells[2 + is_terminal :]) for cells in shown]
