#!/usr/bin/env python3
"""Draw the pictures of docs/gallery.md: ``scripts/gallery.py RUNS`` takes the runs of ready recipes from a folder."""

import sys
from pathlib import Path

from matplotlib import rc_context
from matplotlib.style import library
from PIL import Image

from aworld_train import recipe as recipes
from aworld_train.training.curve import draw_curve
from aworld_train.training.recorded_run import find_runs

IMAGES = Path(__file__).parents[1] / "docs/images"
BACKGROUND = {"figure.facecolor": "#0d1117", "axes.facecolor": "#0d1117"}
THEMES = {"dark": {**library["dark_background"], **BACKGROUND, "savefig.facecolor": "auto"}, "light": {}}
COLOURS = 64


def main(runs: Path) -> None:
    """Draw each run that has the name of a ready recipe; its own picture is light again at the end."""
    names = {name.rpartition("/")[2] for name in recipes.shipped()}
    for run in find_runs(runs):
        if run.name not in names:
            continue
        for theme, style in THEMES.items():
            with rc_context(style):
                drawn = draw_curve(run.path)
            assert drawn is not None, f"{run.name} has no step"
            with Image.open(drawn) as picture:
                small = picture.convert("RGB").quantize(COLOURS)
            small.save(IMAGES / f"gallery-{run.name}-{theme}.png", optimize=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
