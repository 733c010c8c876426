"""Revoking a token of an environment: its gateway is ordered to end the token's sessions and to refuse it.

The gateway remembers it for as long as the environment runs. A note on this machine gives an environment that is
started again under its name a new secret, with which no old token is valid.
"""

import time

import httpx

from aworld_train.env import registry
from aworld_train.env.record import Record
from aworld_train.errors import EnvironmentFailure, UsageError
from aworld_train.network import is_near
from aworld_train.serving import tokens
from aworld_train.serving.tokens import InvalidToken, Revocation

_SECONDS = 30.0


def revoke(record: Record, token: str) -> tuple[str, int, bool]:
    """Revoke a token or its id; returns the id, how many sessions ended, and whether the gateway stored it."""
    revocation = _revocation(record, token)
    if revocation.token_id == record.credentials.token_id:
        raise UsageError(
            f"That is the token of {record.name!r} itself, which `env up` printed. To make it invalid, take the "
            f"environment down (`aworld-train env down {record.name}`) and start it again: it gets a new one."
        )
    registry.note_revocation(record.name)
    order = tokens.sign_revocation(
        record.credentials.secret, record.name, revocation, issued=int(time.time())
    )
    url = record.revocations
    try:
        response = httpx.post(
            url,
            headers={"Authorization": f"Bearer {order}"},
            timeout=_SECONDS,
            trust_env=not is_near(url),
        )
        response.raise_for_status()
        result = response.json()
        return revocation.token_id, int(result["sessions"]), bool(result["kept"])
    except (httpx.HTTPError, ValueError, KeyError, TypeError) as error:
        raise EnvironmentFailure(
            f"The gateway of {record.name!r} at {url} did not revoke the token ({type(error).__name__}); see "
            f"`aworld-train env status {record.name}`, and try again."
        ) from error


def _revocation(record: Record, token: str) -> Revocation:
    if "." not in token:
        if not token:
            raise UsageError("--revoke needs a token, or the id of one (`env token --json` prints it).")
        return Revocation(token, None)
    try:
        claims = tokens.verify(record.credentials.secret, record.name, token)
    except InvalidToken as reason:
        raise UsageError(f"There is nothing to revoke in {record.name!r}: {reason}.") from reason
    return Revocation(claims.token_id, claims.expires)
