"""Bearer tokens of an environment: JSON Web Tokens (HS256) with the environment, an expiry and a number of sessions.

Holders of the secret may also order the gateway to revoke a token. An order is for another audience, so that neither is
accepted as the other. ``exp``, ``aud`` and the environment's name are required, and no other algorithm is accepted. The
library takes a tenth of a second to import, so it is imported where it is used.
"""

import secrets
from dataclasses import dataclass
from typing import Any

_ALGORITHM = "HS256"
_AUDIENCE = "aworld-train environment"
_ORDERS = "aworld-train gateway"
_ORDER_SECONDS = 60
_ID_BYTES = 8
_LEEWAY = 5.0  # seconds by which clocks may differ


@dataclass(frozen=True)
class TokenClaims:
    """The content of a valid token; ``sessions`` may be open at a time (None: no limit).

    ``expires`` (Unix time, seconds) includes a tolerance for different clocks.
    """

    token_id: str
    sessions: int | None
    expires: float


@dataclass(frozen=True)
class Revocation:
    """The order to refuse a token, which itself expires at ``expires`` (Unix time, seconds; None: unknown)."""

    token_id: str
    expires: float | None


class InvalidToken(Exception): ...


def new_secret() -> str:
    return secrets.token_hex(32)


def sign(
    secret: str,
    environment: str,
    *,
    issued: int,
    expires: int,
    sessions: int | None = None,
    token_id: str | None = None,
) -> str:
    """A token for ``environment``, by default with a random ``token_id``; times are Unix seconds."""
    import jwt

    claims = {
        "aud": _AUDIENCE,
        "env": environment,
        "iat": issued,
        "exp": expires,
        "jti": token_id or secrets.token_hex(_ID_BYTES),
        **({} if sessions is None else {"sessions": sessions}),
    }
    return jwt.encode(claims, secret, algorithm=_ALGORITHM)


def verify(secret: str, environment: str, token: str) -> TokenClaims:
    claims = _verified(secret, environment, token, _AUDIENCE)
    sessions = claims.get("sessions")
    return TokenClaims(
        str(claims["jti"]), sessions if isinstance(sessions, int) else None, float(claims["exp"]) + _LEEWAY
    )


def sign_revocation(secret: str, environment: str, revocation: Revocation, *, issued: int) -> str:
    """An order for the gateway of ``environment``, valid for a minute."""
    import jwt

    claims = {
        "aud": _ORDERS,
        "env": environment,
        "iat": issued,
        "exp": issued + _ORDER_SECONDS,
        "jti": secrets.token_hex(_ID_BYTES),
        "revoke": revocation.token_id,
        "until": revocation.expires,
    }
    return jwt.encode(claims, secret, algorithm=_ALGORITHM)


def verify_revocation(secret: str, environment: str, order: str) -> Revocation:
    claims = _verified(secret, environment, order, _ORDERS)
    until = claims.get("until")
    return Revocation(str(claims.get("revoke", "")), None if until is None else float(until))


def _verified(secret: str, environment: str, token: str, audience: str) -> dict[str, Any]:
    import jwt

    try:
        claims: dict[str, Any] = jwt.decode(
            token.encode(),
            secret,
            algorithms=[_ALGORITHM],
            audience=audience,
            leeway=_LEEWAY,
            options={"require": ["exp", "aud", "env", "jti"]},
        )
    except jwt.ExpiredSignatureError as error:
        raise InvalidToken("the token has expired") from error
    # The last two come from bytes that are not text and from deeply nested JSON, before the signature is checked.
    except (jwt.InvalidTokenError, UnicodeEncodeError, RecursionError) as error:
        raise InvalidToken("the token is not valid here") from error
    if claims["env"] != environment:
        raise InvalidToken("the token is for another environment")
    return claims
