"""Admission of clients: their token is signed for this environment, has not expired and was not revoked."""

import time
from collections.abc import Sequence
from pathlib import Path

from aiohttp import web

from aworld_train.serving.env_gateway.connections import Connection, Connections
from aworld_train.serving.env_gateway.request_limits import Refusal
from aworld_train.serving.env_gateway.revocations import Revocations
from aworld_train.serving.tokens import InvalidToken, Revocation, TokenClaims, verify, verify_revocation

_MAX_REMEMBERED = 1024


class TokenCheck:
    """The check of an environment's tokens; the files ``revoked`` store which were revoked."""

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
