"""What becomes of an episode in training.

The recipe's ``rollout.treatment`` says it for each outcome. Without a score, without its process, or in a group that is
too small, an episode is dropped, whatever the recipe says.
"""

from enum import Enum


class Treatment(Enum):
    """``trained`` on; ``masked``: it counts in its group's baseline alone; or ``dropped``: it counts nowhere."""

    trained = "trained"
    masked = "masked"
    dropped = "dropped"
