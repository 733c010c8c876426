"""Variables that travel through Ray: opened with the cluster's token alone, and safe from Ray's expansion of `$`."""

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aworld_train.encrypted_env import ray_token, seal, unseal
from aworld_train.errors import UsageError

TEXTS = st.text(st.characters(blacklist_categories=["Cs"]))


@given(st.dictionaries(TEXTS, TEXTS), st.text("abcdef0123456789", min_size=1))
def test_what_was_sealed_is_opened_with_the_same_token(variables: dict[str, str], token: str) -> None:
    sealed = seal(variables, token)
    assert unseal(sealed, token) == variables
    assert os.path.expandvars(sealed) == sealed


def test_another_token_opens_nothing_and_the_text_shows_nothing() -> None:
    sealed = seal({"HF_TOKEN": "canary"}, "a" * 64)
    assert "canary" not in sealed
    assert "HF_TOKEN" not in sealed
    with pytest.raises(UsageError, match="sealed with another token"):
        unseal(sealed, "b" * 64)


def test_the_token_is_read_from_where_ray_reads_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert ray_token() is None
    (tmp_path / ".ray").mkdir()
    (tmp_path / ".ray" / "auth_token").write_text("of-home\n")
    assert ray_token() == "of-home"
    named = tmp_path / "token"
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(named))
    with pytest.raises(UsageError, match="RAY_AUTH_TOKEN_PATH"):
        ray_token()
    named.write_text("of-file\n")
    assert ray_token() == "of-file"
    monkeypatch.setenv("RAY_AUTH_TOKEN", "of-variable")
    assert ray_token() == "of-variable"
