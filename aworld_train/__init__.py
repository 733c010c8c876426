"""Train tool-using LLM agents from one YAML recipe. Importing the package imports nothing heavy."""

__version__ = "0.1.0"
