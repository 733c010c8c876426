"""Runs and their episodes in a browser: a server on the loopback address, and a file that needs none.

Everything that a model or a tool wrote is hostile here. The server gives data as JSON only; the page puts texts into
text nodes only, and its policy runs no script and loads nothing but the files of this package.
"""
