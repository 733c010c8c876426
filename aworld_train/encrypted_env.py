"""Environment variables that travel through a Ray cluster encrypted, with a key made from the cluster's token.

Ray writes every runtime environment into a log on each node (``runtime_env_agent.log``).
"""

import base64
import hashlib
import hmac
import json
import os
from collections.abc import Mapping
from pathlib import Path

from aworld_train.errors import UsageError

JOB_VARIABLES_VARIABLE = "AWORLD_TRAIN_JOB_VARIABLES"
"""Holds the names of the variables that came with a job, separated by commas, in the process that trains."""
_PURPOSE = b"aworld-train: variables of a job"


def ray_token(environment: Mapping[str, str] | None = None) -> str | None:
    """The Ray cluster's token, from a variable or a file (docs.ray.io/en/latest/ray-security/token-auth.html)."""
    environment = os.environ if environment is None else environment
    if token := environment.get("RAY_AUTH_TOKEN", "").strip():
        return token
    named = environment.get("RAY_AUTH_TOKEN_PATH")
    file = Path(named) if named else Path(environment.get("HOME") or Path.home()) / ".ray" / "auth_token"
    try:
        return file.read_text().strip() or None
    except OSError as error:
        if named:
            raise UsageError(
                f"The file with Ray's token, {file} (RAY_AUTH_TOKEN_PATH), cannot be read: {error.strerror}."
            ) from error
        return None


def seal(variables: Mapping[str, str], token: str) -> str:
    """The variables encrypted for the processes that have the token; letters, digits, ``-``, ``_`` and ``=`` only."""
    from cryptography.fernet import Fernet

    return Fernet(_key(token)).encrypt(json.dumps(dict(variables)).encode()).decode()


def unseal(sealed: str, token: str) -> dict[str, str]:
    from cryptography.fernet import Fernet, InvalidToken

    try:
        variables: dict[str, str] = json.loads(Fernet(_key(token)).decrypt(sealed.encode()))
    except InvalidToken:
        raise UsageError(
            "The variables of this job cannot be read: they were sealed with another token than this process has. "
            "Give every node of the Ray cluster the same token."
        ) from None
    return variables


def _key(token: str) -> bytes:
    return base64.urlsafe_b64encode(hmac.digest(token.encode(), _PURPOSE, hashlib.sha256))
