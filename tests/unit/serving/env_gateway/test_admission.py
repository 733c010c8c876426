"""Who has a valid token is admitted, whatever else it sends; who has none, or one that has ended, is told which."""

import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from aiohttp import web
from aiohttp.test_utils import make_mocked_request

from aworld_train.serving.env_gateway import admission, connections
from aworld_train.serving.env_gateway.admission import TokenCheck
from aworld_train.serving.env_gateway.connections import Connection, Connections
from aworld_train.serving.env_gateway.request_limits import Refusal
from aworld_train.serving.tokens import (
    InvalidToken,
    Revocation,
    TokenClaims,
    new_secret,
    sign,
    sign_revocation,
    verify,
)

SECRET = new_secret()


@pytest.fixture
def check(tmp_path: Path) -> TokenCheck:
    return TokenCheck("name", SECRET, [tmp_path / "revoked"])


def request(token: str, scheme: str = "Bearer", protocol: Connection | None = None) -> web.Request:
    made = make_mocked_request("POST", "/mcp", headers={"Authorization": f"{scheme} {token}"})
    if protocol is not None:
        made._protocol = protocol
    return made


def token(token_id: str = "t", sessions: int | None = None) -> str:
    now = int(time.time())
    return sign(SECRET, "name", issued=now, expires=now + 600, sessions=sessions, token_id=token_id)


@pytest.mark.parametrize("scheme", ["Bearer", "bearer", "BEARER "])
def test_a_client_is_admitted_with_the_claims_of_its_token(check: TokenCheck, scheme: str) -> None:
    began = int(time.time())
    for _ in range(2):  # the second time it is known
        claims = check.admit(request(token(sessions=3), scheme))
        assert (claims.token_id, claims.sessions) == ("t", 3)
        assert claims.expires >= began + 600


@pytest.mark.parametrize("scheme", ["Basic", "", "Bearer-"])
def test_another_kind_of_login_is_refused(check: TokenCheck, scheme: str) -> None:
    for admit in (check.admit, check.revoke):
        with pytest.raises(InvalidToken, match="a bearer token is needed"):
            admit(request(token(), scheme))


def test_the_signature_of_a_known_token_is_not_verified_again(
    check: TokenCheck, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(admission, "_MAX_REMEMBERED", 2)
    verified: list[str] = []

    def noted(secret: str, environment: str, text: str) -> TokenClaims:
        verified.append(text)
        return verify(secret, environment, text)

    monkeypatch.setattr(admission, "verify", noted)
    one, two, three = token("one"), token("two"), token("three")
    for shown in (one, two, one, two, three, three, one):
        check.admit(request(shown))
    assert verified == [one, two, three, one]  # a third one is one too many: all are forgotten


def test_a_known_token_is_refused_from_the_moment_it_expires(
    check: TokenCheck, monkeypatch: pytest.MonkeyPatch
) -> None:
    expires = check.admit(request(token())).expires
    now = expires - 0.001
    monkeypatch.setattr(admission, "time", SimpleNamespace(time=lambda: now))
    check.admit(request(token()))
    now = expires
    with pytest.raises(InvalidToken, match="the token has expired"):
        check.admit(request(token()))


def test_an_order_revokes_a_known_token_and_no_other(
    check: TokenCheck, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed: list[str] = []
    monkeypatch.setattr(check.connections, "close_all_of_token", closed.append)
    check.admit(request(token()))
    now = int(time.time())
    revocation = Revocation("t", now + 600.0)
    order = sign_revocation(SECRET, "name", revocation, issued=now)
    assert check.revoke(request(order)) == (revocation, True)
    assert closed == ["t"]
    for one in (check, TokenCheck("name", SECRET, [tmp_path / "revoked"])):
        with pytest.raises(InvalidToken, match="the token was revoked"):
            one.admit(request(token()))
        assert one.admit(request(token("other"))).token_id == "other"
    assert TokenCheck("name", SECRET, []).revoke(request(order)) == (revocation, False)


async def test_a_token_with_too_many_connections_gets_no_more(
    check: TokenCheck, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "MAX_PER_TOKEN", 2)
    server = web.Server(lambda _: web.Response())  # type: ignore[arg-type, return-value]
    made = [Connection(server, Connections()) for _ in range(3)]
    for connection in made:
        connection.busy = True
    claims = [check.admit(request(token(), protocol=connection)) for connection in made[:2]]
    assert [connection.expires for connection in made[:2]] == [one.expires for one in claims]
    with pytest.raises(Refusal, match="this token has too many connections") as refused:
        check.admit(request(token(), protocol=made[2]))
    assert (refused.value.status, refused.value.cause) == (503, "connections")
    assert refused.value.response().keep_alive is False
