"""Only the tasks to exclude are left out of a dataset, they are listed, and the counts add up."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from aworld_train.dataset import BuildReport, build
from aworld_train.errors import DatasetError, UsageError

QUESTION = (
    "The museum in the old harbour opened its new wing in the spring of 1974, and the first exhibition there "
    "showed the work of one painter. How many paintings did the catalogue list under the name of that painter?"
)
NEARLY = QUESTION.replace("spring", "autumn")
SUBJECT_COLUMNS = pa.schema(
    [("extra_info", pa.struct([("expression", pa.string()), ("question", pa.string())]))]
)
OTHER = "Which of the five rivers that meet below the town is the longest, counted from its source?"


def write(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def question_rows(*questions: str) -> list[dict[str, Any]]:
    return [{"id": f"q{i}", "query": question, "answer": "7"} for i, question in enumerate(questions)]


def adds_up(report: BuildReport) -> bool:
    written = sum(report.rows.values())
    others = report.merged + report.against + report.left_over
    compared = report.near_duplicates + report.contained + report.figure_variants_left_out
    kept = report.seen - sum(report.dropped.values())
    return kept == report.kept == written + others + compared


def listed(report: BuildReport) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (report.out / "dropped.jsonl").read_text("utf-8").splitlines()]


def questions(report: BuildReport, split: str = "all") -> set[str]:
    rows = pq.read_table(report.out / f"{split}.parquet")["extra_info"].to_pylist()
    return {row["question"] for row in rows}


def test_near_duplicates_stay_unless_they_are_to_go(tmp_path: Path) -> None:
    source = write(tmp_path / "in.jsonl", question_rows(QUESTION, NEARLY, OTHER))
    every = build("jsonl", tmp_path / "every", files=[source], splits={"all": 1})
    assert (every.rows, every.near_duplicates) == ({"all": 3}, 0)
    report = build("jsonl", tmp_path / "out", files=[source], splits={"all": 1}, dedupe=True)
    assert (report.rows, report.near_duplicates, report.dropped) == ({"all": 2}, 1, {})
    assert OTHER in questions(report)
    (line,) = listed(report)
    assert line["reason"].startswith("near-duplicate of q")
    assert line["file"] == "in.jsonl" and line["line"] in (1, 2)
    assert adds_up(report)


def test_what_a_reference_has_goes_and_so_does_what_is_nearly_it(tmp_path: Path) -> None:
    test = build(
        "jsonl",
        tmp_path / "test",
        files=[write(tmp_path / "test.jsonl", question_rows(QUESTION, "Who was first?"))],
        splits={"test": 1},
    )
    source = write(
        tmp_path / "in.jsonl", question_rows(NEARLY, "  who was FIRST?", OTHER, OTHER + " Say the name.")
    )
    report = build("jsonl", tmp_path / "out", files=[source], splits={"all": 1}, against=[test.out])
    assert (report.against, report.near_duplicates) == (1, 1)
    # Without --dedupe those that are near each other stay.
    assert questions(report) == {OTHER, OTHER + " Say the name."}
    assert listed(report)[0]["reason"].startswith("near-duplicate of test.parquet")
    assert adds_up(report)


@pytest.mark.parametrize(
    ("dedupe", "with_against", "figure_variants", "stay"),
    [
        (True, False, None, True),
        (True, False, "keep", True),
        (True, False, "drop", False),
        (False, True, None, False),
        (False, True, "keep", True),
        (False, True, "drop", False),
        (True, True, "keep", True),
    ],
)
def test_other_figures_stay_in_a_set_and_go_against_another(
    tmp_path: Path, dedupe: bool, with_against: bool, figure_variants: str | None, stay: bool
) -> None:
    variants = [QUESTION.replace("1974", str(year)) for year in range(1975, 1995)]
    test = write(tmp_path / "test.jsonl", question_rows(QUESTION))
    against = (
        [build("jsonl", tmp_path / "test", files=[test], splits={"test": 1}).out] if with_against else []
    )
    rows = question_rows(OTHER, *variants, *([] if with_against else [QUESTION]))
    report = build(
        "jsonl",
        tmp_path / "out",
        files=[write(tmp_path / "in.jsonl", rows)],
        splits={"all": 1},
        dedupe=dedupe,
        against=against,
        figure_variants=figure_variants,
    )
    assert (report.figure_variants_kept, report.figure_variants_left_out) == ((20, 0) if stay else (0, 20))
    assert report.rows == {"all": len(rows) if stay else len(rows) - 20}
    assert len(listed(report)) == report.figure_variants_left_out
    examples = report.figure_variant_examples
    assert len(examples) == 3
    assert all("has the words and not the figures of " in str(example["reason"]) for example in examples)
    manifest = json.loads((report.out / "dataset.json").read_text())
    assert manifest["figure_variants"] == figure_variants
    assert manifest["figure_variant_examples"] == examples
    assert adds_up(report)


KINDS = """
from aworld_train.dataset.tasks import Task, TaskKind

SUBJECTS = {"expression": "48/2", "question": "Which river is the longest?"}

def tasks(options):
    for kind in open(options.files[0]).read().split():
        yield Task(data_source="own", ability="any", kind=TaskKind(kind), subject=SUBJECTS[kind], message="?",
                   answer="1", scorer="exact", answer_schema="answer", file="kinds.txt", line=1)
"""


@pytest.mark.parametrize(
    ("built", "referenced", "missing"),
    [
        ("expression", "question", "expression"),
        ("question", "expression", "question"),
        ("expression question", "question", "expression"),
        ("expression question", "expression", "question"),
        ("expression question", "expression question", None),
        ("question", "expression question", None),
        ("question", "question", None),
    ],
)
def test_a_reference_without_tasks_of_a_kind_that_is_built_cannot_be_compared(
    tmp_path: Path, built: str, referenced: str, missing: str | None
) -> None:
    subjects = {"expression": "1+2", "question": "Who was first?"}
    rows = [{"extra_info": {kind: subjects[kind]}} for kind in referenced.split()]
    pq.write_table(pa.Table.from_pylist(rows, SUBJECT_COLUMNS), tmp_path / "reference.parquet")
    (tmp_path / "kinds.py").write_text(KINDS)
    (tmp_path / "kinds.txt").write_text(built)

    def made() -> BuildReport:
        return build(
            f"{tmp_path / 'kinds.py'}:tasks",
            tmp_path / "out",
            files=[tmp_path / "kinds.txt"],
            splits={"all": 1},
            against=[tmp_path / "reference.parquet"],
        )

    if missing is None:
        assert made().rows == {"all": len(built.split())}
    else:
        with pytest.raises(DatasetError, match=rf"does not record extra_info\.{missing} in any row"):
            made()
        assert not (tmp_path / "out").exists()


def test_a_question_inside_another_goes_against_a_set_and_stays_within_one(tmp_path: Path) -> None:
    test = build(
        "jsonl",
        tmp_path / "test",
        files=[write(tmp_path / "test.jsonl", question_rows("Who was first?", QUESTION))],
        splits={"test": 1},
    )
    rows = question_rows(
        f"{OTHER} {QUESTION} Think step by step, name the sources that were used, and end with one number.",
        QUESTION.partition(". ")[0],
        OTHER,
    )
    source = write(tmp_path / "in.jsonl", rows)
    report = build("jsonl", tmp_path / "out", files=[source], splits={"all": 1}, against=[test.out])
    assert (report.contained, report.near_duplicates, report.rows) == (2, 0, {"all": 1})
    assert questions(report) == {OTHER}
    rows_of_test = pq.read_table(test.out / "test.parquet")["extra_info"].to_pylist()
    row = next(number for number, info in enumerate(rows_of_test) if info["question"] == QUESTION)
    assert all(
        line["reason"].startswith(f"contains or is a part of test.parquet, row {row}")
        for line in listed(report)
    )
    assert adds_up(report)
    within = build("jsonl", tmp_path / "within", files=[source], splits={"all": 1}, dedupe=True)
    assert (within.contained, within.rows) == (0, {"all": 3})


def test_a_file_of_others_can_be_a_reference_by_its_prompts(tmp_path: Path) -> None:
    row = {"prompt": [{"role": "user", "content": QUESTION}]}
    pq.write_table(pa.Table.from_pylist([row]), tmp_path / "foreign.parquet")
    source = write(tmp_path / "in.jsonl", question_rows(QUESTION, OTHER))
    report = build(
        "jsonl", tmp_path / "out", files=[source], splits={"all": 1}, against=[tmp_path / "foreign.parquet"]
    )
    assert (report.against, questions(report)) == (1, {OTHER})


def test_with_strict_the_first_thing_that_would_be_dropped_is_an_error(tmp_path: Path) -> None:
    source = write(tmp_path / "in.jsonl", [*question_rows(OTHER), {"query": "No answer?"}])
    assert build("jsonl", tmp_path / "out", files=[source], splits={"all": 1}).dropped
    with pytest.raises(DatasetError, match=r"in\.jsonl, line 2: .*--strict nothing may be dropped"):
        build("jsonl", tmp_path / "strict", files=[source], splits={"all": 1}, strict=True)
    assert not (tmp_path / "strict").exists()
    again = write(tmp_path / "again.jsonl", [*question_rows(OTHER), {"query": OTHER.upper(), "answer": "8"}])
    with pytest.raises(DatasetError, match=r"again\.jsonl, line 2: same question with another answer"):
        build("jsonl", tmp_path / "strict", files=[again], splits={"all": 1}, strict=True)


def test_a_long_text_that_was_dropped_is_listed_in_part(tmp_path: Path) -> None:
    source = write(tmp_path / "in.jsonl", [*question_rows(OTHER), {"query": "x" * 9000}])
    report = build("jsonl", tmp_path / "out", files=[source], splits={"all": 1})
    assert 1000 < len(listed(report)[0]["text"]) < 2100


def test_every_split_has_its_fraction_of_every_level(tmp_path: Path) -> None:
    rows = [
        {
            "id": str(i),
            "query": f"Question {i}?",
            "answer": "1",
            "level": str(1 + (i % 10 > 5) + (i % 10 > 8)),
        }
        for i in range(200)
    ]
    report = build(
        "jsonl",
        tmp_path / "out",
        files=[write(tmp_path / "in.jsonl", rows)],
        splits={"train": 0.7, "test": 0.3},
    )
    assert report.levels == {"train": {"1": 84, "2": 42, "3": 14}, "test": {"1": 36, "2": 18, "3": 6}}
    every = [
        row["extra_info"]["index"]
        for split in report.rows
        for row in pq.read_table(report.out / f"{split}.parquet").to_pylist()
    ]
    assert sorted(every) == list(range(200))


def test_sorting_on_disk_makes_the_same_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [
        {"query": f"Question {i % 150}?", "answer": str(i % 150 % 7 if i < 290 else 9)} for i in range(300)
    ]
    source = write(tmp_path / "in.jsonl", rows)
    in_memory = build("jsonl", tmp_path / "a", files=[source])
    monkeypatch.setattr("aworld_train.dataset.builder.BATCH_TASKS", 16)
    monkeypatch.setattr("aworld_train.dataset.builder.Spool", lambda folder: small_spool(folder))
    on_disk = build("jsonl", tmp_path / "b", files=[source])
    assert on_disk.outputs == in_memory.outputs
    assert in_memory.merged and in_memory.dropped


def small_spool(folder: Path) -> Any:
    from aworld_train.dataset.external_sort import Spool

    return Spool(folder, max_held_bytes=4000, run_bytes=2000)


OWN = """
from aworld_train.dataset.tasks import Dropped, Task, TaskKind

def tasks(options):
    for line, text in enumerate(open(options.files[0]).read().split(";"), 1):
        if not text.strip():
            yield Dropped("own.txt", line, text, "nothing there")
        else:
            yield Task(data_source="own", ability="any", kind=TaskKind.question, subject=text, message=text,
                       answer=ANSWER, scorer=SCORER, answer_schema="answer", file="own.txt", line=line)
"""


def write_source(folder: Path, answer: str = "'1'", scorer: str = "'exact'") -> str:
    (folder / "own.py").write_text(OWN.replace("ANSWER", answer).replace("SCORER", scorer))
    (folder / "own.txt").write_text("a;b; ;c")
    return str(folder / "own.py")


def test_a_source_of_ones_own_is_used_like_any_other(tmp_path: Path) -> None:
    report = build(
        f"{write_source(tmp_path)}:tasks", tmp_path / "out", files=[tmp_path / "own.txt"], splits={"all": 1}
    )
    assert (report.rows, report.dropped) == ({"all": 3}, {"nothing there": 1})
    assert [file["name"] for file in report.sources[0]["files"]] == ["own.txt"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"scorer": "3"}, r"own\.txt, line 1\) whose scorer is int 3, not text"),
        (
            {"scorer": "'exakt'"},
            r"all\.parquet: row 0 \(own\.txt, line [124]\) has an unknown scorer 'exakt'.*Did you mean 'exact'",
        ),
    ],
)
def test_what_a_source_of_ones_own_does_wrong_is_found_before_anything_is_written(
    tmp_path: Path, options: dict[str, str], message: str
) -> None:
    spec = f"{write_source(tmp_path, **options)}:tasks"
    with pytest.raises(DatasetError, match=message):
        build(spec, tmp_path / "out", files=[tmp_path / "own.txt"], splits={"all": 1})
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("own.py:tasks", r"no such file: .*/own\.py"),
        ("{own}:task", "Did you mean 'tasks'"),
        ("nothing_like_it:tasks", "importing nothing_like_it failed"),
    ],
)
def test_a_source_that_cannot_be_loaded_is_a_usage_error(tmp_path: Path, spec: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        build(spec.format(own=write_source(tmp_path)), tmp_path / "out")


@pytest.mark.parametrize(
    ("source", "options", "message"),
    [
        ("arithmetic", {"levels": ["1"]}, "no use for --level"),
        ("gsm8k", {"files": ["x"], "columns": {"query": "q"}}, "no use for --map"),
        ("jsonl", {}, "give it --file"),
        ("jsonl", {"files": [""]}, "jsonl is given a file without a name"),
        ("arithmetic", {"figure_variants": "drop"}, "--figure-variants drop is for questions that --dedupe"),
        ("arithmetic", {"figure_variants": "dorp", "dedupe": True}, "'dorp' and can be keep or drop"),
        ("arithmetic", {"scorer": "nummer"}, "arithmetic is given an unknown scorer 'nummer'.*number"),
        ("arithmetic", {"answer_schema": "jsn:a"}, "unusable answer_schema"),
        (
            "gaia",
            {"files": ["x"], "attachments_at": "files"},
            "--attachments-at 'files' is not an absolute path",
        ),
    ],
)
def test_options_that_would_do_nothing_or_harm_are_refused(
    tmp_path: Path, source: str, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        build(source, tmp_path / "out", **options)
