"""The counts of a build add up, for any mix of sources and any reason to leave tasks out."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from aworld_train.atomic import sha256_of
from aworld_train.dataset import BuildPlan, PlannedSource, build, carry_out
from aworld_train.dataset.matches import FigureVariants
from aworld_train.dataset.sources import SourceOptions
from aworld_train.errors import DatasetError
from tests.properties import examples

LONG = (
    "which of the many jars on the highest shelf of the old shop, behind the counter where the old baker keeps his "
    "flour and his best knives, is in her opinion the"
)
# Few, so that they repeat and are nearly one another, some with another answer.
QUESTIONS = st.sampled_from(
    [
        *("jar", "Jar ", "which jar is old", f"one jar of 7: {LONG} finest", f"jar 7: {LONG} Best"),
        *(f"{LONG} {word}" for word in ("biggest", "Best", "worst", "best 1", "best 2")),
    ]
)
PLAIN_ROWS = [{"query": f"{word} jar?", "answer": "plum"} for word in ("which", "whose", "what")]
LINES = st.one_of(
    st.fixed_dictionaries(
        {"query": QUESTIONS, "answer": st.sampled_from(["plum", "plum", "17", "?", None])},
        optional={"id": st.sampled_from("abcdef"), "level": st.sampled_from([1, "2"])},
    ).map(json.dumps),
    st.sampled_from(["", "no json", "1", '{"query": "cut']),
)
FILES = st.lists(st.lists(LINES, min_size=4, max_size=16), min_size=1, max_size=2)


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("reference")
    rows = [{"query": text, "answer": "1"} for text in ("which jar is old", f"{LONG} finest")]
    (folder / "known.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return build("jsonl", folder / "out", files=[folder / "known.jsonl"], splits={"test": 1}).out


@settings(examples(60), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    files=FILES,
    with_arithmetic=st.booleans(),
    weights=st.none() | st.lists(st.sampled_from([0.5, 1, 3]), min_size=3, max_size=3),
    splits=st.sampled_from([{"all": 1.0}, {"train": 0.5, "val": 0.5}, {"some": 0.4}]),
    limit=st.none() | st.integers(1, 12),
    levels=st.sampled_from([(), ("1",)]),
    dedupe=st.booleans(),
    against=st.booleans(),
    figure_variants=st.sampled_from([None, *FigureVariants]),
)
def test_every_piece_of_input_is_in_the_account_once(
    tmp_path: Path,
    reference: Path,
    files: list[list[str]],
    with_arithmetic: bool,
    weights: list[float] | None,
    splits: dict[str, float],
    limit: int | None,
    levels: tuple[str, ...],
    dedupe: bool,
    against: bool,
    figure_variants: FigureVariants | None,
) -> None:
    options = []
    for number, lines in enumerate(files):
        path = tmp_path / f"{number}.jsonl"
        lines += [json.dumps({**row, "query": f"{row['query']} {number}", "level": 1}) for row in PLAIN_ROWS]
        path.write_text("".join(f"{line}\n" for line in lines))
        options.append(("jsonl", SourceOptions(files=(str(path),), levels=levels)))
    # Its tasks are expressions, which are not compared with a reference's questions.
    if with_arithmetic and not against:
        options.append(("arithmetic", SourceOptions()))
        limit = limit or 12
    sources = [
        PlannedSource(name, source_options, None if weights is None else weights[number])
        for number, (name, source_options) in enumerate(options)
    ]
    plan = BuildPlan(
        sources,
        tmp_path / "out",
        splits,
        limit=limit,
        dedupe=dedupe,
        against=[reference] if against else [],
        figure_variants=figure_variants if dedupe or against else None,
    )
    try:
        report = carry_out(plan)
    except DatasetError as error:
        assert "would be empty" in error.message or "has no task left" in error.message
        return
    read = sum(len(lines) for lines in files)
    generated = sum(source["seen"] for source in report.sources[len(files) :])
    assert report.seen == read + generated
    assert report.seen == report.kept + sum(report.dropped.values())
    compared = report.near_duplicates + report.contained + report.figure_variants_left_out
    others = (report.merged, report.against, report.left_over)
    assert report.kept == sum(report.rows.values()) + sum(others) + compared
    assert min(others) >= 0
    assert limit is None or sum(report.rows.values()) <= limit
    check_files(report.out, report.to_json())


def check_files(out: Path, report: dict[str, Any]) -> None:
    """What is in the files is what the report says."""
    listed = [json.loads(line)["reason"] for line in (out / "dropped.jsonl").read_text().splitlines()]
    compared = dict.fromkeys(("near_duplicates", "contained", "figure_variants_left_out"), 0)
    others = Counter[str]()
    beginnings = ("near-duplicate of ", "contains or is a part of ", "has the words and not the figures of ")
    for reason in listed:
        kinds = [kind for kind, text in zip(compared, beginnings, strict=True) if reason.startswith(text)]
        (compared if kinds else others)[kinds[0] if kinds else reason] += 1
    assert compared == {kind: report[kind] for kind in compared}
    assert others == report["dropped"]
    rows = {split: pq.read_table(out / f"{split}.parquet").to_pylist() for split in report["rows"]}
    assert {split: len(inside) for split, inside in rows.items()} == report["rows"]
    for split, inside in rows.items():
        levels = Counter(row["extra_info"]["level"] for row in inside if row["extra_info"]["level"])
        assert levels == report["levels"][split]
    indices = [row["extra_info"]["index"] for inside in rows.values() for row in inside]
    assert len(set(indices)) == len(indices)
    assert report["outputs"] == {name: sha256_of(out / name) for name in report["outputs"]}
