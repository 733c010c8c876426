"""One episode: an agent, a model, tools, and the recorded result. Independent of any training framework."""
