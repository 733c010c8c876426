"""The durable record of every episode: from a task over its model and tool calls to the tokens that were trained on.

Processes that play episodes append events to files of their own (``event_files``); the process that supervises a run
loads them into its database (``loading``). So playing waits for no database, and a process that is killed loses at most
what it has not written yet. Nothing below a run's folder but the database is needed to read a finished run.
"""
