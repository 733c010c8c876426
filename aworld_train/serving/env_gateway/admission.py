"""Who may come in: those whose token is signed for this environment, has not expired and was not revoked."""

import time
from collections.abc import Sequence
from pathlib import Path

from aiohttp import web

from aworld_train.serving.env_gateway.connections import Connection, Connections
from aworld_train.serving.env_gateway.intake import Refusal
from aworld_train.serving.env_gateway.revocations import Revocations
from aworld_train.serving.tokens import InvalidToken, Pass, Revocation, verify, verify_revocation

_MAX_REMEMBERED = 1024


class TokenCheck:
    """The door of one environment.

    Args:
        name: Name of the environment, which tokens have to name too.
        secret: What its tokens are signed with.
        revoked: Files in which it is remembered which tokens were revoked.
    """

    def __init__(self, name: str, secret: str, revoked: Sequence[Path]):
        self._name, self._secret = name, secret
        self._revocations = Revocations(revoked)
        self._known: dict[str, Pass] = {}  # by what was shown
        self.connections = Connections()

    def admit(self, request: web.Request) -> Pass:
        """What a client may do; a token that was good once is not verified again.

        Raises:
            Refused: Nothing.
            Refusal: Its token has too many connections.
        """
        authorization = request.headers.get("Authorization", "")
        allowed = self._known.get(authorization)
        if allowed is None:
            allowed = verify(self._secret, self._name, _bearer(authorization))
            if len(self._known) >= _MAX_REMEMBERED:
                self._known.clear()
            self._known[authorization] = allowed
        self.check(allowed)
        connection = request.protocol
        if isinstance(connection, Connection) and not self.connections.trust(
            connection, allowed.token_id, allowed.expires
        ):
            raise Refusal(503, "connections", "this token has too many connections", closes=True)
        return allowed

    def check(self, allowed: Pass) -> None:
        """Go on if the token is still valid.

        Raises:
            Refused: It has expired or was revoked.
        """
        if allowed.token_id in self._revocations:
            raise InvalidToken("the token was revoked")
        if time.time() >= allowed.expires:
            raise InvalidToken("the token has expired")

    def revoke(self, request: web.Request) -> tuple[Revocation, bool]:
        """Refuse a token from now on; which, and whether that is remembered if the gateway is started again.

        Raises:
            Refused: The request shows no order to do so.
        """
        order = _bearer(request.headers.get("Authorization", ""))
        revocation = verify_revocation(self._secret, self._name, order)
        is_kept = self._revocations.add(revocation)
        self.connections.distrust(revocation.token_id)
        return revocation, is_kept


def _bearer(authorization: str) -> str:
    """The token in that header.

    Raises:
        Refused: There is none.
    """
    scheme, _, token = authorization.partition(" ")
    if scheme.lower() != "bearer":
        raise InvalidToken("a bearer token is needed")
    return token.strip()
