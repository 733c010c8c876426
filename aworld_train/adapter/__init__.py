"""Adapters: one folder per training framework, turning a recipe into that framework's run."""
