"""Train tool-using LLM agents from one YAML recipe.

The package is organised by what users name: ``env``, ``dataset``, ``reward``, ``agent``, ``recipe``,
``adapter``, ``trainer``. Importing it imports nothing heavy; each part loads what it needs when used.
"""

__version__ = "0.1.0"
