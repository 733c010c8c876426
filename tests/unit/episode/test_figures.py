"""Figures of episodes: their lines, and that a new one stands in one place."""

import json
import math
import subprocess
import sys
from pathlib import Path

import pytest

from aworld_train.episode.figures import EpisodeFigures, read_figures
from tests.stored_runs import make_stored_run

RECORDED = Path(__file__).parents[2] / "data" / "recorded_run" / "episodes.jsonl"
NEW_FIGURE = """\
    longest_result: Annotated[
        int | None, Figure("longest result", is_listed=True, per_step=_MEAN)
    ] = None
"""
WITH_IT = """
import sys, types
from importlib.util import find_spec
from pathlib import Path

spec = find_spec("aworld_train.episode.figures")
module = types.ModuleType(spec.name)
text = Path(spec.origin).read_text()
sys.modules[spec.name] = module
exec(compile(text.replace("    turns: ", {figure!r} + "    turns: ", 1), spec.origin, "exec"), module.__dict__)

from aworld_train.store.database import Database
from aworld_train.store.loading import load
from aworld_train.store.reading import Store
from aworld_train.store.store_location import store_location
from aworld_train.training.episode_counts import EpisodeCounts
from aworld_train.view.episodes import episode_json, list_json
from tests.stored_runs import StoreRecorder, parse_keep, Redactor, task_row

run = Path({run!r})
recorder = StoreRecorder(run, parse_keep("all"), Redactor())
recorder.begin("new", recorder.task(task_row(0, 2, 3)), step=9, phase="train", attempt=0, key="")
figures = module.EpisodeFigures(outcome="answered", longest_result=70, reward=1.0, turns=2)
recorder.end("new", figures, None)
recorder.close()
database = Database(store_location(run))
load(database, final=True)
database.close()
with Store(store_location(run)) as store:
    assert store.ids("longest_result>=70") == ["new"]
    assert store.ids(sort="longest_result", descending=True)[0] == "new"
    listed = list_json(store.episodes("step=9"))
    assert listed["episodes"][0]["longest_result"] == 70
    assert [each["label"] for each in listed["figures"] if each["is_listed"]][0] == "longest result"
    assert store.figures().step_figures()[-1]["longest_result"] == 70
counts = EpisodeCounts()
counts.add(figures)
assert counts.means["longest_result"] == 70
"""


def test_a_line_keeps_every_key_and_value() -> None:
    for line in RECORDED.read_bytes().splitlines():
        figures = read_figures(line)
        assert json.loads(json.dumps(figures.line())) == json.loads(line) | {"step": figures.step}


def test_what_json_or_float64_does_not_hold_is_read() -> None:
    figures = read_figures(b'{"step": 2, "reward": NaN, "scores": {"acc": NaN, "n": 1e999, "right": true}}')
    assert figures.step == 2 and figures.accuracy is not None and math.isnan(figures.accuracy)
    assert figures.scores is not None and figures.scores["n"] == math.inf


@pytest.mark.parametrize("line", [b"[]", b"1", b'{"step": "one"}', b'{"turns": ["many"]}', b'{"step": 1'])
def test_what_is_not_the_line_of_an_episode_is_refused(line: bytes) -> None:
    with pytest.raises(ValueError):
        read_figures(line)


def test_a_figure_of_a_later_version_is_passed_over() -> None:
    assert read_figures(b'{"step": 1, "more": {"a": 1}}') == EpisodeFigures(step=1)


def test_a_new_figure_is_a_column_condition_order_mean_and_shown_by_its_field_alone(tmp_path: Path) -> None:
    run = make_stored_run(tmp_path, steps=1, tasks=1)  # a store that does not have it yet
    code = WITH_IT.format(figure=NEW_FIGURE, run=str(run))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
