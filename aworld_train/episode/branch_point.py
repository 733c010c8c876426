"""Where an agent's request left its newest conversation."""

from typing import Literal

import msgspec

Cause = Literal["new", "resampled", "edited", "rewritten", "tools", "reset", "template"]
"""Why a request did not continue the newest turn: ``new`` begins another conversation, ``resampled`` repeats a history,
``edited`` changed another's message and ``rewritten`` the assistant's, and a context policy ``reset`` the history."""


class BranchPoint(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """The first message and character that differ from the newest conversation, with the text around it in both.

    ``role`` is empty where no message differs; for a chat template, ``sent`` is its reason. ``agent`` is named where
    those of several agents stand together.
    """

    cause: Cause
    message: int = 0
    role: str = ""
    position: int = 0
    recorded: str = ""
    sent: str = ""
    agent: str = ""
