"""A revoked token stays revoked for as long as it would have been valid, whichever of the gateway's files is left."""

from pathlib import Path

import pytest

from aworld_train.serving.env_gateway.admission import Revocations
from aworld_train.serving.tokens import Revocation

LATER = 1e12
EARLIER = 1.0


def test_a_token_is_revoked_for_the_next_gateway_too_from_any_of_the_files(tmp_path: Path) -> None:
    one, two = tmp_path / "one.json", tmp_path / "two.json"
    assert Revocations([one, two]).add(Revocation("a", LATER))
    one.unlink()
    again = Revocations([one, two])
    assert "a" in again and "b" not in again
    assert again.add(Revocation("b", None))
    for file in (one, two):
        only = Revocations([file])
        assert "a" in only and "b" in only


def test_a_token_that_has_expired_is_forgotten_and_one_without_an_end_never_is(tmp_path: Path) -> None:
    revocations = Revocations([tmp_path / "file.json"])
    for name, expires in (("past", EARLIER), ("endless", None), ("valid", LATER)):
        revocations.add(Revocation(name, expires))
    for known in (revocations, Revocations([tmp_path / "file.json"])):
        assert "past" not in known
        assert "endless" in known and "valid" in known


def test_it_is_stored_if_one_file_can_be_written(tmp_path: Path) -> None:
    nowhere = tmp_path / "none" / "file.json"
    assert Revocations([nowhere, tmp_path / "file.json"]).add(Revocation("a", LATER))
    revocations = Revocations([nowhere])
    assert not revocations.add(Revocation("a", LATER))
    assert "a" in revocations


@pytest.mark.parametrize("text", ["no JSON", "3"])
def test_a_file_that_cannot_be_read_is_told_and_the_others_count(
    tmp_path: Path, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Revocations([tmp_path / "whole.json"]).add(Revocation("a", LATER))
    (tmp_path / "torn.json").write_text(text)
    assert "a" in Revocations([tmp_path / "torn.json", tmp_path / "whole.json"])
    assert f"{tmp_path / 'torn.json'} cannot be read" in capsys.readouterr().err
