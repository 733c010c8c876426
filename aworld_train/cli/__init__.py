"""The command line: one thin file per noun, parsing and printing only."""
