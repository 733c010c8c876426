"""How Alembic applies migrations: on the connection that ``migrate`` has opened."""

from alembic import context

connection = context.config.attributes["connection"]
# SQLite cannot change most of a table in place; in batches Alembic copies it.
context.configure(connection=connection, render_as_batch=True)
with context.begin_transaction():
    context.run_migrations()
