"""Alembic's migrations, shipped with the package."""

HEAD = "0003"
"""The newest revision: what this version of the package reads and writes."""
