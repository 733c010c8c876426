"""What an evaluation leaves for people and other programs: a summary in Markdown, a table of attempts, and a log."""
