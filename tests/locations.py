"""Where tests find the repository's files, however deep in ``tests`` they are themselves."""

from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
DATA = REPOSITORY / "tests" / "data"
GSM8K_ODD = DATA / "gsm8k_odd.jsonl"
"""Lines in GSM8K's form that differ from it in one way each."""
