"""How well the confidence that a model states fits how often it is right."""

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

BINS = 10


@dataclass(frozen=True)
class CalibrationBin:
    """Answers of neighbouring confidence: how many, their mean confidence, and the share of them that is right."""

    n: int
    confidence: float
    accuracy: float


@dataclass(frozen=True)
class Calibration:
    """The calibration of stated confidences.

    Attributes:
        n: Answers with a confidence.
        rms_error: Root mean square, over the bins with the weight of their answers, of confidence minus accuracy
            (Hendrycks et al. 2019, arXiv:1812.04606, with bins of equal mass), as Humanity's Last Exam reports it. The
            authors' script has bins of 100 answers and leaves out the last; here are ten, and all count.
        brier: Mean square of confidence minus score (Brier 1950); 0.25 for a model that always says 0.5.
        bins: At most ten, of as equal numbers of answers as possible, in the order of confidence.
    """

    n: int
    rms_error: float
    brier: float
    bins: tuple[CalibrationBin, ...]


def calibration_of(answers: Sequence[tuple[float, float]]) -> Calibration | None:
    """The calibration of answers, each with its confidence and its score from 0 to 1; None without answers.

    Answers of equal confidence count with their common mean, so the order of the answers does not matter.
    """
    if not answers:
        return None
    scores: dict[float, list[float]] = defaultdict(list)
    for confidence, score in answers:
        scores[confidence].append(score)
    mean = {confidence: fmean(each) for confidence, each in scores.items()}
    ordered = sorted(confidence for confidence, _ in answers)
    n, count = len(ordered), min(BINS, len(ordered))
    slices = [ordered[i * n // count : (i + 1) * n // count] for i in range(count)]
    bins = tuple(
        CalibrationBin(len(each), fmean(each), fmean(mean[value] for value in each)) for each in slices
    )
    square = math.fsum(each.n * (each.confidence - each.accuracy) ** 2 for each in bins) / n
    brier = fmean((confidence - score) ** 2 for confidence, score in answers)
    return Calibration(n, math.sqrt(square), brier, bins)
