"""A Chromium for one session: what it may reach, what a model sees of a page, and a model that uses it alone."""
