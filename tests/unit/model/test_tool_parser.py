"""The format of tool calls is checked against a model directory's own files, without its tokenizer."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from aworld_train.errors import ModelError
from aworld_train.model.tool_parser import check_tool_parser
from tests.models import shipped_tokenizer

SEED = (
    "{%- for message in messages %}{{ bos_token }}{{ message.content }}{% for call in message.tool_calls %}"
    "{% generation %}<seed:tool_call>\n<function={{ call.function.name }}>\n"
    "{% for key, value in call.function.arguments.items() %}<parameter={{ key }}>{{ value }}</parameter>\n{% endfor %}"
    "</function>\n</seed:tool_call>{% endgeneration %}{% endfor %}{% endfor %}"
)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tiny")
    shipped_tokenizer().save_pretrained(folder)
    return folder


def test_the_format_is_named_with_its_reason(tiny: Path) -> None:
    assert check_tool_parser(str(tiny), "auto") == "Tool calls are read as hermes (by the chat template)."


def test_one_that_does_not_fit_is_refused(tiny: Path) -> None:
    with pytest.raises(ModelError, match="glm does not fit the model"):
        check_tool_parser(str(tiny), "glm")


@pytest.mark.parametrize(
    "config",
    [
        {"chat_template": SEED, "bos_token": {"content": "<s>"}},
        {"chat_template": [{"name": "default", "template": "x"}, {"name": "tool_use", "template": SEED}]},
    ],
)
def test_a_template_in_the_tokenizers_configuration_is_found(
    tmp_path: Path, config: dict[str, object]
) -> None:
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    assert check_tool_parser(str(tmp_path), "auto") == "Tool calls are read as seed (by the chat template)."


def test_tokens_decide_where_the_template_shows_no_calls(tmp_path: Path) -> None:
    (tmp_path / "chat_template.jinja").write_text("{{ messages[0].content }}")
    (tmp_path / "tokenizer.json").write_text(
        json.dumps({"added_tokens": [{"content": "<|tool_call_start|>"}]})
    )
    assert "lfm2 (by the mark" in str(check_tool_parser(str(tmp_path), "auto"))


def test_a_model_on_the_hub_is_checked_where_it_is_in_the_cache_else_when_it_is_loaded(hub: None) -> None:
    assert check_tool_parser("some/model", "auto") == "Tool calls are read as hermes (by the chat template)."
    with pytest.raises(ModelError, match="glm does not fit the model"):
        check_tool_parser("some/model", "glm")
    assert check_tool_parser("other/model", "auto") is None
    assert check_tool_parser("nothing", "auto") is None


def test_the_check_imports_no_tokenizer(tiny: Path) -> None:
    script = (
        "import sys\nfrom aworld_train.model.tool_parser import check_tool_parser\n"
        f"check_tool_parser({str(tiny)!r}, 'auto')\nassert not {{'transformers', 'torch'}} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)
