"""Bearer tokens of an environment: JSON Web Tokens (HS256) that say which environment, until when, and how much.

The secret is random, made per environment, and known to its gateway only. ``exp``, ``aud`` and the environment's name
are required, and no other algorithm is accepted, ``none`` least of all.
"""

import secrets
from dataclasses import dataclass

import jwt

_ALGORITHM = "HS256"
_AUDIENCE = "aworld-train environment"
_LEEWAY = 5.0  # seconds by which clocks may differ


@dataclass(frozen=True)
class Pass:
    """What a valid token allows.

    Attributes:
        token_id: The same for every request with this token.
        sessions: Most sessions open at one time; None where there is no such limit.
        expires: Until when (Unix time, seconds).
    """

    token_id: str
    sessions: int | None
    expires: float


class Refused(Exception):
    """The token opens nothing here; the text says why and repeats nothing of it."""


def new_secret() -> str:
    """A secret for one environment: 256 random bits."""
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
    """A token for ``environment``; the same arguments give the same token.

    Args:
        secret: The environment's secret.
        environment: Its name.
        issued: Unix time in seconds.
        expires: Unix time in seconds.
        sessions: Most sessions that may be open with it at one time.
        token_id: A name for it; random where there is none.
    """
    claims = {
        "aud": _AUDIENCE,
        "env": environment,
        "iat": issued,
        "exp": expires,
        "jti": token_id or secrets.token_hex(8),
        **({} if sessions is None else {"sessions": sessions}),
    }
    return jwt.encode(claims, secret, algorithm=_ALGORITHM)


def verify(secret: str, environment: str, token: str) -> Pass:
    """What the token allows in ``environment``.

    Raises:
        Refused: It is expired, of another environment, signed otherwise, or no token at all.
    """
    try:
        claims = jwt.decode(
            token,
            secret,
            algorithms=[_ALGORITHM],
            audience=_AUDIENCE,
            leeway=_LEEWAY,
            options={"require": ["exp", "aud", "env", "jti"]},
        )
    except jwt.ExpiredSignatureError as error:
        raise Refused("the token has expired") from error
    except jwt.InvalidTokenError as error:
        raise Refused("the token is not valid here") from error
    if claims["env"] != environment:
        raise Refused("the token is for another environment")
    sessions = claims.get("sessions")
    return Pass(str(claims["jti"]), sessions if isinstance(sessions, int) else None, float(claims["exp"]))
