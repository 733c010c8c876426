"""What uv is told of pip's configuration."""

import subprocess
import sys
from pathlib import Path

import pytest
from uv_settings import uv_settings


@pytest.mark.parametrize(
    ("line", "settings"),
    [
        ("global.index-url='https://m/simple'", ["UV_INDEX_URL=https://m/simple"]),
        ("install.extra-index-url='\\nhttps://a\\nhttps://b'", ["UV_EXTRA_INDEX_URL=https://a https://b"]),
        (":env:.find-links='/a /b'", ["UV_FIND_LINKS=/a,/b"]),
        ("global.cert='/etc/ca.pem'", ["SSL_CERT_FILE=/etc/ca.pem"]),
        ("global.proxy='http://p:8'", ["HTTP_PROXY=http://p:8", "HTTPS_PROXY=http://p:8"]),
        ("global.disable-pip-version-check='1'", []),
        ("download.index-url='https://m/simple'", []),
        ("", []),
    ],
)
def test_what_pip_is_configured_with_becomes_a_variable_of_uv(line: str, settings: list[str]) -> None:
    assert list(uv_settings([line], {})) == settings


def test_the_environment_overrides_a_section_and_a_section_the_global_one() -> None:
    lines = [
        f"{section}.index-url='https://{section.strip(':')}'" for section in (":env:", "global", "install")
    ]
    assert list(uv_settings(lines, {})) == ["UV_INDEX_URL=https://env"]
    assert list(uv_settings(lines[1:], {})) == ["UV_INDEX_URL=https://install"]


def test_a_variable_that_is_set_stays() -> None:
    assert list(uv_settings(["global.index-url='https://m'"], {"UV_INDEX_URL": "https://mine"})) == []


def test_pip_s_own_output_is_understood(tmp_path: Path) -> None:
    configuration = tmp_path / "pip.conf"
    configuration.write_text("[global]\nindex-url = https://m/simple\n[install]\nfind-links =\n  /a\n  /b\n")
    pip = subprocess.run(
        [sys.executable, "-m", "pip", "config", "list"],
        env={"PIP_CONFIG_FILE": str(configuration), "PIP_TRUSTED_HOST": "m n", "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    found = dict(line.split("=", 1) for line in uv_settings(pip.stdout.splitlines(), {}))
    assert found["UV_INDEX_URL"] == "https://m/simple"
    assert found["UV_FIND_LINKS"] == "/a,/b"
    assert found["UV_INSECURE_HOST"] == "m n"
