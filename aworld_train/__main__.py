"""``python -m aworld_train`` is the command ``aworld-train``."""

from aworld_train.cli.main import main

main()
