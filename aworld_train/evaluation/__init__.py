"""Measuring an agent: a dataset played with the same loop and tools that training uses."""
