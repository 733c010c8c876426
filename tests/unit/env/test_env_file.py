"""The file of --env-file: references in any order, and an error with file and line where one leads nowhere."""

import itertools
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aworld_train.env.env_file import EnvFile, VariableAssignment, read_env_file
from aworld_train.errors import UsageError

LINES = ("A=${B}/${C}", "B=b${C}", "C=c", "D='${A}'")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / ".env"


def test_references_are_replaced_in_whatever_order_the_lines_are(file: Path) -> None:
    for lines in itertools.permutations(LINES):
        file.write_text("\n".join(lines))
        found = read_env_file(file)
        assert {name: found.value(name) for name in "ABCD"} == {"A": "bc/c", "B": "bc", "C": "c", "D": "bc/c"}


@given(st.lists(st.tuples(st.sampled_from("ABCDE"), st.sampled_from("ABCDE")), max_size=8))
def test_a_value_is_found_unless_its_references_form_a_circle(edges: list[tuple[str, str]]) -> None:
    texts = {
        name: name.lower() + "".join(f"${{{end}}}" for begin, end in edges if begin == name)
        for name in "ABCDE"
    }
    found = EnvFile(Path("e"), {name: VariableAssignment(1, text) for name, text in texts.items()}, ())

    def is_circular(name: str, above: str = "") -> bool:
        return name in above or any(is_circular(end, above + name) for begin, end in edges if begin == name)

    for name in "ABCDE":
        if is_circular(name):
            with pytest.raises(UsageError, match="refers"):
                found.value(name)
        else:
            assert found.value(name).startswith(name.lower()) and "$" not in found.value(name)


def test_what_the_file_lacks_comes_from_the_environment_and_then_from_the_default(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OUTSIDE", "outside")
    monkeypatch.setenv("SELF", "of the shell")
    file.write_text("A=${OUTSIDE}-${NOWHERE:-default}-${EMPTY:-filled}\nEMPTY=\nSELF=${SELF}\n")
    found = read_env_file(file)
    assert found.value("A") == "outside-default-filled"
    assert found.value("SELF") == "of the shell"
    assert found.references() == {"OUTSIDE", "NOWHERE", "EMPTY", "SELF"}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("\n\nA=secret${B}\nB=${C}\nC=${A}\n", r"\.env:5: C refers in a circle: A -> B -> C -> A"),
        (
            "\nA=${BASE_URI}\nBASE_URL=secret\n",
            r"\.env:2: A refers to \$\{BASE_URI\}.* mean 'BASE_URL'",
        ),
        ("A=secret${NOTHING_LIKE_IT}", r"\.env:1: A .* sets\. \(\$\{NOTHING_LIKE_IT:-\} may be missing"),
        ("A=${A}", r"\.env:1: A refers to \$\{A\}, which neither the file nor the environment"),
    ],
)
def test_a_reference_that_leads_nowhere_or_round_is_refused_by_line_without_any_value(
    file: Path, text: str, reason: str
) -> None:
    file.write_text(text)
    with pytest.raises(UsageError, match=reason) as refused:
        read_env_file(file).value("A")
    assert "secret" not in refused.value.message


def test_a_line_that_is_no_assignment_is_refused_by_its_number_alone(file: Path) -> None:
    file.write_text('A=1\n# A\n\nB="secret\nC=3\n')
    with pytest.raises(UsageError, match=r"\.env:4 is not an assignment") as refused:
        read_env_file(file)
    assert "secret" not in refused.value.message
    file.write_text("\ufeffA=1\n\n\nsecret\nexport B='2 #' # two\n", encoding="utf-8")
    found = read_env_file(file)
    assert found.lines_without_value == (4,)
    assert found.assignments == {"A": VariableAssignment(1, "1"), "B": VariableAssignment(5, "2 #")}


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"No such file: .*/nowhere"):
        read_env_file(tmp_path / "nowhere")
    with pytest.raises(UsageError, match=r"\(--env-file\) cannot be read"):
        read_env_file(tmp_path)
    (tmp_path / "binary").write_bytes(b"A=\xff\xfe\n")
    with pytest.raises(UsageError, match=r"/binary \(--env-file\) cannot be read"):
        read_env_file(tmp_path / "binary")
