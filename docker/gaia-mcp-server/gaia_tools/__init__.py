"""Tool servers for GAIA tasks: one module each, an MCP server on its standard input and output."""
