"""One episode: an agent, a model and tools, and what came of it. Knows nothing of any training framework."""
