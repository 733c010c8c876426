"""When a run has stopped to get better: as many validations in a row as it has patience for were below the best."""

from collections.abc import Mapping


def reason_to_stop(accuracies: Mapping[int, float], patience: int) -> str | None:
    steps = sorted(accuracies)
    if not patience or len(steps) <= patience:
        return None
    best = max(steps, key=lambda step: (accuracies[step], -step))
    later = len(steps) - 1 - steps.index(best)
    if later < patience:
        return None
    return (
        f"Stopped early after step {steps[-1]}: the accuracy of step {best}, {accuracies[best]:.1%}, was not exceeded "
        f"in the {later} validations since (trainer.early_stop={patience})."
    )
