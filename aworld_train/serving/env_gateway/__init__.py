"""The gateway: the one published port of an environment, in front of its workers.

``app`` checks tokens and passes requests on, ``pool`` says which session has which worker and who waits for one,
``link`` follows one worker's life, ``metrics`` counts.
"""
