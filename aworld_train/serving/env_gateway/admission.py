"""Admission of clients: their token is signed for this environment, has not expired and was not revoked."""

import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from aiohttp import web

from aworld_train.serving.env_gateway.connections import Connection, Connections
from aworld_train.serving.env_gateway.request_limits import Refusal
from aworld_train.serving.tokens import InvalidToken, Revocation, TokenClaims, verify, verify_revocation

_MAX_REMEMBERED = 1024


class TokenCheck:
    def __init__(self, name: str, secret: str, revoked: Sequence[Path]):
        self._name, self._secret = name, secret
        self._revocations = Revocations(revoked)
        self._verified: dict[str, TokenClaims] = {}  # by the Authorization header
        self.connections = Connections()

    def admit(self, request: web.Request) -> TokenClaims:
        """The claims of a client's token; the signature of a known token is not verified again.

        Raises InvalidToken, or Refusal if the token has too many connections.
        """
        authorization = request.headers.get("Authorization", "")
        claims = self._verified.get(authorization)
        if claims is None:
            claims = verify(self._secret, self._name, _bearer(authorization))
            if len(self._verified) >= _MAX_REMEMBERED:
                self._verified.clear()
            self._verified[authorization] = claims
        self.check(claims)
        connection = request.protocol
        if isinstance(connection, Connection) and not self.connections.assign_to_token(
            connection, claims.token_id, claims.expires
        ):
            raise Refusal(503, "connections", "this token has too many connections", closes=True)
        return claims

    def check(self, claims: TokenClaims) -> None:
        if claims.token_id in self._revocations:
            raise InvalidToken("the token was revoked")
        if time.time() >= claims.expires:
            raise InvalidToken("the token has expired")

    def revoke(self, request: web.Request) -> tuple[Revocation, bool]:
        """Revoke a token; returns which one, and whether it stays revoked if the gateway is restarted."""
        order = _bearer(request.headers.get("Authorization", ""))
        revocation = verify_revocation(self._secret, self._name, order)
        is_stored = self._revocations.add(revocation)
        self.connections.close_all_of_token(revocation.token_id)
        return revocation, is_stored


def _bearer(authorization: str) -> str:
    scheme, _, token = authorization.partition(" ")
    if scheme.lower() != "bearer":
        raise InvalidToken("a bearer token is needed")
    return token.strip()


class Revocations:
    """The revoked tokens: each is written to all ``files``, and one in any of them is revoked.

    The files are beside the workers' sockets: in containers those are volumes in memory, which no tool can open and
    which exist as long as the gateway or a worker runs.
    """

    def __init__(self, files: Sequence[Path]):
        self._files = files
        self._expires: dict[str, float | None] = {}
        for file in files:
            try:
                self._expires |= json.loads(file.read_text())
            except FileNotFoundError:
                continue
            except (OSError, ValueError, TypeError) as error:
                sys.stderr.write(f"The revoked tokens in {file} cannot be read: {type(error).__name__}\n")

    def __contains__(self, token_id: str) -> bool:
        return token_id in self._expires

    def add(self, revocation: Revocation) -> bool:
        """Revoke a token; returns whether that could be stored."""
        now = time.time()
        self._expires[revocation.token_id] = revocation.expires
        self._expires = {
            token_id: expires
            for token_id, expires in self._expires.items()
            if expires is None or expires > now
        }
        text = json.dumps(self._expires)
        return sum(_write(file, text) for file in self._files) > 0


def _write(file: Path, text: str) -> bool:
    new = file.with_name(f"{file.name}.new")
    try:
        new.write_text(text)
        new.replace(file)
    except OSError:
        return False
    return True
