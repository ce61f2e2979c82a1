"""How the schema came to be: Alembic revisions, from the first table on."""
