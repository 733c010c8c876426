"""The context of all HTTP clients."""

import ssl

from aworld_train.rollout.http_client import tls_context


def test_clients_share_one_context_which_checks_certificates() -> None:
    context = tls_context()
    assert context is tls_context()
    assert (context.verify_mode, context.check_hostname) == (ssl.CERT_REQUIRED, True)
