"""Tasks that a language model makes with an environment's own tools, kept by how a solver does on them.

``prompts`` is what the model is asked, ``tasks`` what it answers, ``stage`` one evaluation of many such questions,
``verdicts`` what is kept of its tasks, and ``synthesize`` the order of all of it.
"""
