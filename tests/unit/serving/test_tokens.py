"""Tokens: what was signed for an environment opens that one, as long and as often as was said, and nothing else."""

import time

import jwt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aworld_train.serving import tokens
from aworld_train.serving.tokens import (
    InvalidToken,
    Revocation,
    TokenClaims,
    sign,
    sign_revocation,
    verify,
    verify_revocation,
)

SECRET = tokens.new_secret()
HOUR = 3600


def now() -> int:
    return int(time.time())


def made(**changes: object) -> str:
    """A token with other claims than ``sign`` would give it; None leaves one out."""
    claims = {
        "aud": "aworld-train environment",
        "env": "tools",
        "iat": now(),
        "exp": now() + HOUR,
        "jti": "t",
        **changes,
    }
    return jwt.encode({name: value for name, value in claims.items() if value is not None}, SECRET, "HS256")


@given(st.text(min_size=1), st.none() | st.integers(1, 9999), st.none() | st.text(min_size=1))
def test_what_was_signed_is_what_is_allowed(name: str, sessions: int | None, token_id: str | None) -> None:
    expires = now() + HOUR
    token = sign(SECRET, name, issued=now(), expires=expires, sessions=sessions, token_id=token_id)
    allowed = verify(SECRET, name, token)
    # Clocks may differ by some seconds.
    assert allowed == TokenClaims(token_id or allowed.token_id, sessions, expires + 5.0)


@given(st.text(min_size=1), st.text(min_size=1))
def test_a_token_opens_the_environment_that_it_names_and_no_other(name: str, other: str) -> None:
    token = sign(SECRET, name, issued=now(), expires=now() + HOUR)
    if other != name:
        with pytest.raises(InvalidToken, match="another environment"):
            verify(SECRET, other, token)


@given(st.text())
def test_whatever_is_no_token_is_refused(text: str) -> None:
    with pytest.raises(InvalidToken, match=r"^the token is not valid here$"):
        verify(SECRET, "tools", text)


@given(st.data())
def test_a_token_of_which_one_character_was_changed_is_refused(data: st.DataObject) -> None:
    token = made()
    place = data.draw(st.integers(0, len(token) - 1))
    # The last character of a part has bits that mean nothing: changing these alone changes no token.
    if token[place] == "." or token[place + 1 : place + 2] in ("", "."):
        return
    other = data.draw(st.sampled_from("AZaz09-_").filter(lambda one: one != token[place]))
    with pytest.raises(InvalidToken):
        verify(SECRET, "tools", token[:place] + other + token[place + 1 :])


@pytest.mark.parametrize(
    ("claims", "reason"),
    [
        ({"exp": now() - 60}, "the token has expired"),
        ({"exp": None}, "not valid here"),
        ({"aud": None}, "not valid here"),
        ({"aud": "somebody else"}, "not valid here"),
        ({"env": None}, "not valid here"),
        ({"env": "other"}, "another environment"),
        ({"jti": None}, "not valid here"),
        ({"exp": "tomorrow"}, "not valid here"),
    ],
)
def test_a_token_needs_an_end_an_audience_an_environment_and_a_name(
    claims: dict[str, object], reason: str
) -> None:
    with pytest.raises(InvalidToken, match=reason):
        verify(SECRET, "tools", made(**claims))


def test_another_secret_and_other_algorithms_are_refused() -> None:
    claims = jwt.decode(made(), options={"verify_signature": False})
    for token in (
        jwt.encode(claims, tokens.new_secret(), "HS256"),
        jwt.encode(claims, SECRET, "HS512"),
        jwt.encode(claims, "", "none"),
    ):
        with pytest.raises(InvalidToken, match="not valid here"):
            verify(SECRET, "tools", token)


@pytest.mark.parametrize("expires", [None, 1.5])
def test_an_order_to_revoke_is_valid_for_a_minute_and_is_no_token(
    monkeypatch: pytest.MonkeyPatch, expires: float | None
) -> None:
    revocation = Revocation("t", expires)
    for age, is_valid in ((0, True), (60, True), (70, False), (-70, False)):
        order = sign_revocation(SECRET, "tools", revocation, issued=now() - age)
        if is_valid:
            assert verify_revocation(SECRET, "tools", order) == revocation
        else:
            with pytest.raises(InvalidToken):
                verify_revocation(SECRET, "tools", order)
    order = sign_revocation(SECRET, "tools", revocation, issued=now())
    for check, text, environment in (
        (verify, order, "tools"),
        (verify_revocation, made(), "tools"),
        (verify_revocation, order, "other"),
    ):
        with pytest.raises(InvalidToken):
            check(SECRET, environment, text)


def test_the_same_arguments_give_the_same_token_and_no_name_a_new_one() -> None:
    first, second = (sign(SECRET, "tools", issued=1, expires=2, token_id="t") for _ in range(2))
    assert first == second
    assert sign(SECRET, "tools", issued=1, expires=2) != sign(SECRET, "tools", issued=1, expires=2)


def test_secrets_are_long_and_never_the_same() -> None:
    secrets_made = {tokens.new_secret() for _ in range(100)}
    assert len(secrets_made) == 100
    assert all(len(bytes.fromhex(secret)) == 32 for secret in secrets_made)
