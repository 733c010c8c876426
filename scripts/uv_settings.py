"""What pip is configured to do, for uv: VARIABLE=VALUE lines, made from the output of ``pip config list`` on stdin.

uv reads neither pip's files nor its PIP_* variables, and behind a mirror or a proxy it would find no packages without
them. Only what says where packages are and how to get there is handed over. A variable that is set already is left
out, because whoever set it meant uv.
"""

import ast
import os
import sys
from collections.abc import Iterable, Iterator, Mapping

SECTIONS = ("global", "install", ":env:")
"""Of pip's configuration, those that count for an installation; each overrides the ones before it."""

VARIABLES = {
    "index-url": ("UV_INDEX_URL",),
    "extra-index-url": ("UV_EXTRA_INDEX_URL",),
    "find-links": ("UV_FIND_LINKS",),
    "no-index": ("UV_NO_INDEX",),
    "trusted-host": ("UV_INSECURE_HOST",),
    "cert": ("SSL_CERT_FILE",),
    "client-cert": ("SSL_CLIENT_CERT",),
    "proxy": ("HTTP_PROXY", "HTTPS_PROXY"),
    "timeout": ("UV_HTTP_TIMEOUT",),
    "default-timeout": ("UV_HTTP_TIMEOUT",),
    "no-cache-dir": ("UV_NO_CACHE",),
}
"""By pip's option; uv separates several links by commas, and all other values by spaces, as pip does."""


def main() -> None:
    for line in uv_settings(sys.stdin, os.environ):
        sys.stdout.write(line + "\n")


def uv_settings(configuration: Iterable[str], environment: Mapping[str, str]) -> Iterator[str]:
    for option, value in pip_options(configuration).items():
        for variable in VARIABLES[option]:
            if variable not in environment:
                yield f"{variable}={','.join(value.split()) if option == 'find-links' else ' '.join(value.split())}"


def pip_options(configuration: Iterable[str]) -> dict[str, str]:
    """The options that uv has a variable for, from lines such as ``global.index-url='https://...'``."""
    found: dict[str, dict[str, str]] = {section: {} for section in SECTIONS}
    for line in configuration:
        name, _, value = line.strip().partition("=")
        section, _, option = name.rpartition(".")
        if section in found and option in VARIABLES:
            found[section][option] = ast.literal_eval(value)
    return {option: value for section in SECTIONS for option, value in found[section].items()}


if __name__ == "__main__":
    main()
