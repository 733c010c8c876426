"""`aworld-train reward`: a file is scored line by line, and one answer is explained."""

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from aworld_train.cli.main import main
from aworld_train.errors import DatasetError
from aworld_train.evaluation.ground_truths import find_ground_truth, read_ground_truths
from tests import warm
from tests.judge_server import JudgeServer, ParsedRequest, honest


def command(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *arguments: str) -> Any:
    """Exit code, standard output and standard error of a command."""
    monkeypatch.setattr(sys, "argv", ["aworld-train", "reward", *arguments])
    monkeypatch.setenv("COLUMNS", "200")
    with pytest.raises(SystemExit) as ended:
        main()
    output = capsys.readouterr()
    return ended.value.code, output.out, " ".join(output.err.split())


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Any:
    return lambda *arguments: command(capsys, monkeypatch, *arguments)


def lines(path: Path, *data: Any) -> Path:
    path.write_text("".join((one if isinstance(one, str) else json.dumps(one)) + "\n" for one in data))
    return path


GOOD = [
    {"id": "a", "prediction": "<answer>1/2</answer>", "answer": "0.5", "scorer": "math"},
    {"id": 2, "prediction": r"\boxed{4}", "answer": 4, "scorer": "exact", "answer_schema": "boxed"},
    {"id": "c", "prediction": "I do not know", "answer": "5", "scorer": "exact"},
    {
        "id": "d",
        "prediction": "<answer>x</answer>",
        "answer": '{"tests": "assert 1"}',
        "scorer": "code_tests",
    },
    {
        "id": "e",
        "prediction": [
            {"role": "user", "content": "<answer>5</answer>"},
            {"role": "tool", "content": "<answer>5</answer>"},
            {"role": "assistant", "content": "<answer>6</answer>"},
        ],
        "answer": "5",
    },
    {"id": "a", "prediction": "<answer>\ud800</answer>", "answer": "5", "scorer": "exact"},
]


def test_a_line_gives_a_line(run: Any, tmp_path: Path) -> None:
    code, out, err = run("score", str(lines(tmp_path / "p.jsonl", *GOOD)), "--json")
    found = [json.loads(line) for line in out.splitlines()]
    assert {tuple(one) for one in found} == {("id", "score", "extracted", "outcome", "parts")}
    assert [(one["id"], one["score"], one["extracted"], one["outcome"]) for one in found] == [
        ("a", 1.0, "1/2", "scored"),
        (2, 1.0, "4", "scored"),
        ("c", 0.0, None, "no_answer"),
        ("d", None, "x", "abstained"),
        ("e", 0.0, "6", "scored"),
        ("a", 0.0, "\ud800", "scored"),
    ]
    assert code == 0
    assert "p.jsonl, line 4: there is no tool environment" in err


def test_people_get_a_table_and_means(run: Any, tmp_path: Path) -> None:
    code, out, _ = run("score", str(lines(tmp_path / "p.jsonl", *GOOD)))
    rows = [line.split() for line in out.splitlines()]
    assert code == 0
    assert ["c", "0", "no_answer"] in rows
    assert ["math", "1", "1", "scored", "1"] in rows
    assert ["exact", "0.3333", "3", "scored", "2,", "no_answer", "1"] in rows
    assert ["code_tests", "none", "0", "abstained", "1"] in rows
    assert ["all", "0.4", "5"] in rows


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ("{", "this is not valid JSON"),
        ("[1]", "not a JSON object"),
        ({"prediction": "x", "answer": "1"}, "no 'id'"),
        ({"id": True, "prediction": "x", "answer": "1"}, "no 'id'"),
        ({"id": "x", "answer": "1"}, "'prediction' must be a text, or a list of messages"),
        ({"id": "x", "prediction": [{"content": "1"}], "answer": "1"}, "'role'"),
        ({"id": "x", "prediction": "x"}, "no 'answer'. Add it, or name the dataset"),
        ({"id": "x", "prediction": "x", "answer": [1]}, "'answer' must be a text, not list"),
        ({"id": "x", "prediction": "x", "answer": "1", "scorer": "gaja"}, "Did you mean 'gaia'"),
        ({"id": "x", "prediction": "x", "answer": "1", "answer_schema": "answr"}, "'answr'"),
    ],
)
def test_a_bad_line_is_named_and_the_others_are_scored(
    run: Any, tmp_path: Path, bad: Any, message: str
) -> None:
    file = lines(tmp_path / "p.jsonl", GOOD[0], "", bad, GOOD[1])
    code, out, err = run("score", str(file), "--json")
    assert [json.loads(line)["id"] for line in out.splitlines()] == ["a", 2]
    assert f"{file}, line 3: " in err and message in err
    assert "1 of 3 lines have no score" in err
    assert code == 1


def test_a_scorer_that_fails_has_its_line_and_an_exit_code(run: Any, tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text("def own(answer, truth): return 1 / 0\n")
    line = {"id": 1, "prediction": "<answer>1</answer>", "answer": "1", "scorer": f"{tmp_path}/own.py:own"}
    code, out, err = run("score", str(lines(tmp_path / "p.jsonl", line)), "--json")
    assert json.loads(out) == {"id": 1, "score": None, "extracted": "1", "outcome": "error", "parts": {}}
    assert code == 1 and "ZeroDivisionError" in err


def parquet(path: Path, *rows: dict[str, Any]) -> Path:
    """A file of verl's row schema, as other programs write it."""
    table = [
        {
            "data_source": "test",
            "prompt": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": row["query"]}],
            "reward_model": {"style": "rule", "ground_truth": row["answer"]},
            "extra_info": {"index": number, **row.get("info", {})},
        }
        for number, row in enumerate(rows)
    ]
    pq.write_table(pa.Table.from_pylist(table), path)
    return path


def test_lines_are_joined_to_a_dataset(run: Any, tmp_path: Path) -> None:
    info = {"id": "seven", "scorer": "exact", "answer_schema": "boxed"}
    tasks = parquet(
        tmp_path / "d.parquet",
        {"query": "?", "answer": "7", "info": info},
        {"query": "?", "answer": "8", "info": {"id": None, "scorer": None, "answer_schema": None}},
    )
    file = lines(
        tmp_path / "p.jsonl",
        {"id": "seven", "prediction": r"\boxed{7}"},
        {"id": "seven", "prediction": r"\boxed{8}"},
        {"id": 1, "prediction": "<answer>8</answer>"},
        {"id": 1, "prediction": "8 ", "answer_schema": "last_line", "scorer": "exact"},
        {"id": "sevn", "prediction": r"\boxed{7}"},
    )
    code, out, err = run("score", str(file), "--dataset", str(tasks), "--json")
    assert [json.loads(line)["score"] for line in out.splitlines()] == [1.0, 0.0, 1.0, 1.0]
    assert "line 5: the dataset has no task with the id 'sevn'. Did you mean 'seven'?" in err
    assert code == 1


def test_a_dataset_may_be_json_lines(tmp_path: Path) -> None:
    task = {"id": "q1", "query": "6 x 7?", "answer": "42", "scorer": "number", "answer_schema": "boxed"}
    truths = read_ground_truths(lines(tmp_path / "d.jsonl", task, {"id": 2, "answer": "x"}))
    found = find_ground_truth(truths, "q1")
    assert (found.answer, found.scorer, found.answer_schema, found.query) == (
        "42",
        "number",
        "boxed",
        "6 x 7?",
    )
    assert find_ground_truth(truths, "2").scorer is None


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ([{"id": 1, "answer": "a"}, {"id": "1", "answer": "b"}], "line 2: a task before it has the id '1'"),
        ([{"id": 1}], "line 1: it has no 'answer'"),
        (["{"], "line 1: this is not valid JSON"),
        ([], "has no tasks"),
    ],
)
def test_a_dataset_that_cannot_be_joined_to_is_refused(tmp_path: Path, data: list[Any], message: str) -> None:
    with pytest.raises(DatasetError, match=message):
        read_ground_truths(lines(tmp_path / "d.jsonl", *data))


def test_a_directory_is_no_dataset_and_its_files_are_named(tmp_path: Path) -> None:
    for name in ("train", "val"):
        parquet(tmp_path / f"{name}.parquet", {"query": "?", "answer": "7"})
    with pytest.raises(
        DatasetError, match=r"is a directory; name a file in it, as .*train.* or .*val.parquet"
    ):
        read_ground_truths(tmp_path)


def test_a_long_file_is_scored_in_its_order(run: Any, tmp_path: Path) -> None:
    data = [
        {"id": n, "prediction": f"<answer>{n}</answer>", "answer": str(n), "scorer": ("exact", "math")[n % 2]}
        for n in range(1000)
    ]
    code, out, _ = run("score", str(lines(tmp_path / "p.jsonl", *data)), "--json")
    found = [json.loads(line) for line in out.splitlines()]
    assert [one["id"] for one in found] == list(range(1000))
    assert {one["score"] for one in found} == {1.0}
    assert code == 0


def judged(count: int) -> list[dict[str, Any]]:
    """Lines for a judge, of which every other is right."""
    return [
        {"id": n, "prediction": f"<answer>{n}</answer>", "answer": str(n + n % 2), "scorer": "llm_judge"}
        for n in range(count)
    ]


async def delayed(parsed: ParsedRequest) -> Any:
    await asyncio.sleep(0.2)
    return await honest(parsed)


@pytest.fixture
def judge() -> Iterator[JudgeServer]:
    with JudgeServer(delayed) as server:
        yield server


def with_judge(folder: Path, server: JudgeServer, **reward: Any) -> str:
    """A recipe with this judge; ``reward`` is more of its section."""
    recipe = {
        "name": "a",
        "endpoints": {"judge": {"url": server.url, "model": "m"}},
        "reward": {**reward, "judge": {"models": ["judge"], **reward.pop("judge", {})}},
    }
    file = folder / "recipe.yaml"
    file.write_text(yaml.safe_dump(recipe))
    return str(file)


@pytest.mark.parametrize("scorer", [None, "composite"])
def test_lines_that_wait_for_a_judge_lose_no_time_by_it(
    run: Any, tmp_path: Path, judge: JudgeServer, scorer: str | None
) -> None:
    # All of them take longer than a score may: 40 / 2 times 0.2 seconds.
    recipe = with_judge(tmp_path, judge, timeout=3, scorer=scorer, judge={"concurrency": 2})
    code, out, _ = run("score", str(lines(tmp_path / "p.jsonl", *judged(40))), "--recipe", recipe, "--json")
    found = [json.loads(line) for line in out.splitlines()]
    assert [one["score"] for one in found] == [float(n % 2 == 0) for n in range(40)]
    assert judge.max_concurrent == 2
    assert code == 0


def test_lines_without_a_judge_do_not_wait_for_one(run: Any, tmp_path: Path, judge: JudgeServer) -> None:
    own = tmp_path / "own.py"
    own.write_text(f"from pathlib import Path\ndef own(answer, truth): Path('{tmp_path}/came').touch()\n")

    async def after_the_other(parsed: ParsedRequest) -> Any:
        while not (tmp_path / "came").exists():  # noqa: ASYNC110  (it comes from another process)
            await asyncio.sleep(0.01)
        return await honest(parsed)

    judge.script = after_the_other
    recipe = with_judge(tmp_path, judge, judge={"concurrency": 1})
    other = {"id": "x", "prediction": "<answer>1</answer>", "answer": "1", "scorer": f"{own}:own"}
    _, out, _ = run(
        "score", str(lines(tmp_path / "p.jsonl", *judged(2), other)), "--recipe", recipe, "--json"
    )
    assert [json.loads(line)["outcome"] for line in out.splitlines()] == ["scored", "scored", "error"]


def test_a_recipe_and_its_overrides_replace_the_fields_of_lines(run: Any, tmp_path: Path) -> None:
    (tmp_path / "r.yaml").write_text("reward: {scorer: exact, answer_schema: boxed}\n")
    line = {"id": 1, "prediction": r"\boxed{2} <answer>3</answer>", "answer": "3", "scorer": "gaia"}
    file = str(lines(tmp_path / "p.jsonl", line))
    arguments = ("score", file, "--json", "--recipe", str(tmp_path / "r.yaml"))
    assert json.loads(run(*arguments)[1])["extracted"] == "2"
    found = json.loads(run(*arguments, "reward.answer_schema=answer")[1])
    assert (found["score"], found["extracted"]) == (1.0, "3")
    explained = ("explain", "--answer", "3", "--prediction", line["prediction"], "--json", "--recipe")
    found = json.loads(run(*explained, str(tmp_path / "r.yaml"), "reward.scorer=contains")[1])
    assert (found["scorer"], found["score"], found["extracted"]) == ("contains", 0.0, "2")


def test_code_is_tested_where_the_recipe_or_the_variable_says(
    run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "r.yaml").write_text("env: {url: 'http://127.0.0.1:9/mcp', token: '${oc.env:A_TOKEN}'}\n")
    file = str(lines(tmp_path / "p.jsonl", GOOD[3]))
    monkeypatch.setenv("A_TOKEN", "t")
    monkeypatch.setenv("MCP_SERVER_TOKEN", "")  # put back at the end
    monkeypatch.delenv("MCP_SERVER_URL", raising=False)
    lost = "the tool environment was lost"
    assert lost in run("score", file, "--recipe", str(tmp_path / "r.yaml"))[2]
    assert lost not in run("score", file)[2]
    monkeypatch.setenv("MCP_SERVER_URL", "http://127.0.0.1:9/mcp")
    assert lost in run("score", file)[2]


def test_an_answer_is_explained_step_by_step(run: Any) -> None:
    arguments = ("explain", "--answer", "1/2", "--prediction", "<answer>50%</answer>", "--scorer", "math")
    code, out, _ = run(*arguments)
    assert code == 0
    assert "schema      answer finds '50%'" in out
    assert "- answer: '50' (percent)" in out
    assert "score       1 (scored)" in out
    found = json.loads(run(*arguments, "--json")[1])
    assert (found["score"], found["extracted"], found["ground_truth"]) == (1.0, "50%", "1/2")


def test_an_answer_in_a_file_is_compared_with_a_task_of_a_dataset(run: Any, tmp_path: Path) -> None:
    tasks = parquet(tmp_path / "d.parquet", {"query": "?", "answer": "7", "info": {"scorer": "exact"}})
    reply = tmp_path / "reply.json"
    reply.write_text(json.dumps([{"role": "assistant", "content": "<answer>7</answer>"}]))
    code, out, _ = run("explain", "--dataset", str(tasks), "--id", "0", "--prediction", f"@{reply}")
    assert code == 0 and "score       1 (scored)" in out
    reply.write_text("no answer here")
    code, out, _ = run("explain", "--dataset", str(tasks), "--id", "0", "--prediction", f"@{reply}")
    assert code == 0 and "finds nothing" in out and "score       0 (no_answer)" in out


def test_a_long_answer_is_cut_for_people_and_whole_for_programs(run: Any, tmp_path: Path) -> None:
    (tmp_path / "prediction.txt").write_text("a" * 5000)
    arguments = ("explain", "--answer", "b" * 5000, "--answer-schema", "last_line", "--scorer", "exact")
    output = run(*arguments, "--prediction", f"@{tmp_path}/prediction.txt")[1]
    assert output.count("and 4000 more characters") == 2 and len(output) < 3000
    found = json.loads(run(*arguments, "--prediction", f"@{tmp_path}/prediction.txt", "--json")[1])
    assert (len(found["extracted"]), len(found["ground_truth"])) == (5000, 5000)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("explain", "--prediction", "x"), "Give the right answer"),
        (("explain", "--answer", "x"), "the assistant's text"),
        (("explain", "--answer", "x", "--prediction", "@/nowhere"), "/nowhere cannot be read"),
        (("explain", "--id", "1", "--prediction", "x"), "go together"),
        (("explain", "--answer", "x", "--prediction", "x", "--scorer", "gaja"), "Did you mean 'gaia'"),
        (("score", "/nowhere.jsonl"), "/nowhere.jsonl cannot be read"),
        (("score", "/dev/null"), "has no lines"),
        (("score", "/dev/null", "reward.scorer=math"), "name the recipe with --recipe"),
    ],
)
def test_invalid_arguments_are_refused_with_the_reason(
    run: Any, arguments: tuple[str, ...], message: str
) -> None:
    code, _, err = run(*arguments)
    assert code in (1, 2) and message in err


@pytest.mark.parametrize(
    ("where", "message"),
    [("> /dev/full", "error: The output cannot be written: No space left on device.\n"), ("| head -n 1", "")],
)
def test_output_that_cannot_be_written_ends_the_command_with_one_line(
    tmp_path: Path, where: str, message: str
) -> None:
    data = [{"id": n, "prediction": "x" * 1000, "answer": "1"} for n in range(2000)]
    file = lines(tmp_path / "p.jsonl", *data)
    program = f"'{sys.executable}' -m aworld_train reward score '{file}' --json {where}"
    done = subprocess.run(
        ["bash", "-c", f"set -o pipefail; {program}"], capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stderr) == (1, message)


def test_help_shows_how() -> None:
    for name in ("score", "explain"):
        shown = warm.run("-m", "aworld_train", "reward", name, "--help", timeout=60, check=True).stdout
        assert f"aworld-train reward {name}" in shown
