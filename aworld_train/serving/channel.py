"""Mutual authentication of gateway and worker, in every request and its response.

Each pair has a secret that tool servers never get. Request and response each prove it for the request's nonce, so the
gateway rejects a program that replaces a worker's socket, and the worker one that connects to its socket.
"""

import hashlib
import hmac
import secrets
from collections.abc import Mapping

VARIABLE = "AWORLD_CHANNEL"
CHECK_HEADER = "Aworld-Check"
"""A client's header in the first request of a session that checks the tool servers."""
_NONCE = "Aworld-Nonce"
_PROOF = "Aworld-Proof"
_NONCE_BYTES = 16
_PROOF_BYTES = 32


def derive_secret(environment_secret: str, number: int) -> str:
    return hmac.digest(environment_secret.encode(), f"worker {number}".encode(), hashlib.sha256).hex()


class Channel:
    def __init__(self, secret: str):
        self._key = hashlib.sha256(secret.encode()).digest()

    def request_headers(self) -> dict[str, str]:
        nonce = secrets.token_hex(_NONCE_BYTES)
        return {_NONCE: nonce, _PROOF: self._proof("gateway", nonce)}

    def is_gateway(self, request_headers: Mapping[str, str]) -> bool:
        return self._proves("gateway", request_headers.get(_NONCE, ""), request_headers)

    def response_headers(self, request_headers: Mapping[str, str]) -> dict[str, str]:
        return {_PROOF: self._proof("worker", request_headers.get(_NONCE, ""))}

    def is_worker(self, request_headers: Mapping[str, str], response_headers: Mapping[str, str]) -> bool:
        return self._proves("worker", request_headers[_NONCE], response_headers)

    def _proves(self, end: str, nonce: str, headers: Mapping[str, str]) -> bool:
        proof = headers.get(_PROOF, "").encode(errors="replace")
        return hmac.compare_digest(proof, self._proof(end, nonce).encode())

    def _proof(self, end: str, nonce: str) -> str:
        # Keyed BLAKE2 (RFC 7693) is a message authentication code, and costs half of HMAC with SHA-256.
        message = f"{end} {nonce}".encode(errors="replace")
        return hashlib.blake2b(message, digest_size=_PROOF_BYTES, key=self._key).hexdigest()
