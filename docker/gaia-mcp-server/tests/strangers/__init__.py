"""Files that nobody here made, out of packages of PyPI and Debian, and what others than the tools read in them."""
