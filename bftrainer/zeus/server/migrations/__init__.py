"""Steps from one schema of the server's database to the next, for Alembic."""

__all__: list[str] = []
