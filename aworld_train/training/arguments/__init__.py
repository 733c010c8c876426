"""The forms in which a program gives an agent, tasks and a configuration, each turned into what a recipe names.

A run consists of many processes, so whatever a program holds as an object has to become a file or a name that each of
them can load.
"""
