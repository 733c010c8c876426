"""Models that are made instead of downloaded. Nothing here imports torch at the top, so that ``--help`` is fast."""
