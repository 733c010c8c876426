"""Where a run runs: its folder, its processes, its supervision, and what is said of it while it goes and at its end."""
