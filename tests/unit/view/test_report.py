"""A report is one file whose policy lets it run its own script alone, and which holds a fair sample."""

import base64
import hashlib
import json
import re
from pathlib import Path

import pytest

from aworld_train.image_files import shown_image_type
from aworld_train.training.recorded_run import open_run
from aworld_train.view.page_file import bundled, page
from aworld_train.view.report import sample_episodes, write_report
from tests.run_folders import make_run
from tests.stored_runs import make_stored_run

HOSTILE = "<script>alert(1)</script></textarea><!-- ]]> \u2028."


def outline(**kinds: int) -> list[tuple[str, str, int, str, float | None]]:
    """Episodes by outcome: right ones are ``answered``."""
    return [
        (f"{outcome}{number:05d}", "train", number, outcome, 1.0 if outcome == "answered" else None)
        for outcome, count in kinds.items()
        for number in range(count)
    ]


def test_a_sample_is_always_the_same_and_has_each_outcome() -> None:
    episodes = outline(answered=5000, timeout=300, error=2)
    sample = sample_episodes(episodes, 200)
    assert sample == sample_episodes(episodes, 200)
    assert len(set(sample)) == 200
    assert sum(name.startswith("error") for name in sample) == 2
    assert sum(name.startswith("timeout") for name in sample) == 99
    steps = [int(name[-5:]) for name in sample if name.startswith("answered")]
    assert min(steps) < 100 and max(steps) > 4900


@pytest.mark.parametrize(("most", "expected"), [(0, 0), (1, 1), (3, 3), (7, 7), (100, 12)])
def test_a_sample_has_as_many_as_are_wanted_or_there(most: int, expected: int) -> None:
    assert len(sample_episodes(outline(answered=10, timeout=2), most)) == expected


def test_a_report_holds_the_run_and_nothing_in_it_ends_its_element(tmp_path: Path) -> None:
    make_stored_run(tmp_path, "one", say=HOSTILE)
    file = tmp_path / "one.html"
    written = write_report(open_run("one", tmp_path), file, episodes=20)
    text = file.read_text()
    assert (written.episodes, written.total, written.size) == (20, 64, len(text.encode()))
    assert text.count("<script") == 2 and text.count("</script") == 2
    assert "alert(1)</script" not in text and "</textarea" not in text
    data = json.loads(text.partition('id="report">')[2].partition("</script>")[0])
    assert data["report"]["episodes"] == 20
    assert HOSTILE in data["episodes"][0]["head"]["question"]
    assert {each["head"]["outcome"] for each in data["episodes"]} == {"answered", "timeout"}
    assert set(data["tokens"]) == {each["head"]["id"] for each in data["episodes"]}


def test_the_policy_of_a_report_names_the_hashes_of_its_script_and_style_and_nothing_else(
    tmp_path: Path,
) -> None:
    text = page("a <title>", "{}", entry="report.js", styles=("view.css",))
    policy = re.findall(r'http-equiv="Content-Security-Policy" content="([^"]*)"', text)[0]
    assert policy.startswith("default-src 'none'; ") and "unsafe" not in policy and "'self'" not in policy
    for element in ("script", "style"):
        body = re.findall(rf"(?s)<{element}>(.*?)</{element}>", text)[0]
        digest = base64.b64encode(hashlib.sha256(body.encode()).digest()).decode()
        assert f"{element}-src 'sha256-{digest}';" in policy
    assert "<title>a &lt;title&gt;" in text


def test_a_run_without_a_store_has_a_report_of_its_curves(tmp_path: Path) -> None:
    make_run(tmp_path, "bare")
    written = write_report(open_run("bare", tmp_path), tmp_path / "bare.html", episodes=20)
    assert (written.episodes, written.total) == (0, 0)


def test_modules_become_one_script_in_which_each_is_defined_before_it_is_used() -> None:
    files = {
        "main.js": "import { one as first } from './a.js';\nimport B from './sub/b.js';\nshow(first, B);\n",
        "a.js": "export const one = 1;\nexport function two() {}\n",
        "sub/b.js": 'import{one as o}from"../a.js";/* x */const b=o;export{b as default};\n',
    }
    script = bundled(files, "main.js")
    assert script.index("// a.js") < script.index("// sub/b.js") < script.index("// main.js")
    assert "const {one: first} = module0;" in script
    assert "const B = module1.default;" in script
    assert "return {one: one, two: two};" in script and "return {default: b};" in script


@pytest.mark.parametrize(
    "source",
    ["export default function () {}\n", "import * as all from './a.js';\n", "export * from './a.js';\n"],
)
def test_a_form_of_import_that_is_not_read_is_refused(source: str) -> None:
    with pytest.raises(ValueError, match="cannot be bundled"):
        bundled({"main.js": source, "a.js": ""}, "main.js")


def test_modules_that_import_one_another_are_refused() -> None:
    with pytest.raises(ValueError, match="imports itself"):
        bundled({"a.js": "import { b } from './b.js';\n", "b.js": "import { a } from './a.js';\n"}, "a.js")


def test_only_pictures_that_run_nothing_are_images() -> None:
    assert shown_image_type(b"\x89PNG\r\n\x1a\nrest") == "image/png"
    assert shown_image_type(b"\xff\xd8\xff\xe0") == "image/jpeg"
    assert shown_image_type(b"RIFF0000WEBPVP8 ") == "image/webp"
    for other in (b"<svg xmlns='http://www.w3.org/2000/svg'/>", b"<html>", b"", b"%PDF-1.4", b"RIFF0000AVI "):
        assert shown_image_type(other) is None
