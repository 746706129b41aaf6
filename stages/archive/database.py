"""Opening the database: SQLite in WAL mode by a path, or any database that SQLAlchemy knows by a URL."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, create_engine, event, inspect, text
from sqlalchemy.exc import DatabaseError

from kernelwright.kernelbench.errors import UsageError
from kernelwright.stages.archive.migrations import HEAD

BUSY_TIMEOUT_MS = 30_000
"""How long a writer waits for another: commits take milliseconds, so this is never reached by honest load."""


def open_engine(where: str | Path) -> Engine:
    """An engine on an archive that is at this version's schema; a new file or an old schema is brought there.

    Raises UsageError when the file is no archive, or was written by a newer version.
    """
    url = where if isinstance(where, str) and "://" in where else f"sqlite:///{where}"
    engine = create_engine(url)
    if engine.dialect.name == "sqlite":
        event.listen(engine, "connect", _prepare_sqlite)
        event.listen(engine, "begin", _begin_sqlite)
    try:
        _migrate(engine, str(where))
    except DatabaseError as error:
        engine.dispose()
        raise UsageError(f"{where}: cannot be opened as an archive: {error.orig}") from None
    return engine


def writing(engine: Engine) -> Engine:
    """The engine for transactions that write. On SQLite they take the write lock at their start: a transaction that
    reads first and finds on its first write that another has committed fails at once, whatever the timeout."""
    return engine.execution_options(write=True)


def _prepare_sqlite(connection: Any, record: object) -> None:
    # The driver's own BEGIN comes too late and is always deferred; `_begin_sqlite` says it instead.
    connection.isolation_level = None
    for pragma in (
        f"busy_timeout = {BUSY_TIMEOUT_MS}",
        "journal_mode = WAL",
        "synchronous = NORMAL",
        "foreign_keys = ON",
    ):
        connection.execute(f"PRAGMA {pragma}")


def _begin_sqlite(connection: Connection) -> None:
    write = connection.get_execution_options().get("write", False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if write else "BEGIN")


def _migrate(engine: Engine, where: str) -> None:
    with engine.connect() as connection:
        if _version(connection) == HEAD:
            return
    with writing(engine).begin() as connection:
        # Asked again inside the write lock: another process may just have done it.
        found = _version(connection)
        if found == HEAD:
            return
        from alembic import command
        from alembic.config import Config
        from alembic.script import ScriptDirectory

        config = Config()
        config.set_main_option("script_location", str(Path(__file__).parent / "migrations"))
        config.attributes["connection"] = connection
        known = {revision.revision for revision in ScriptDirectory.from_config(config).walk_revisions()}
        if found is not None and found not in known:
            raise UsageError(
                f"{where}: written by a newer version of kernelwright (schema {found}); this one knows {HEAD}"
            )
        command.upgrade(config, "head")


def _version(connection: Connection) -> str | None:
    if not inspect(connection).has_table("alembic_version"):
        return None
    return connection.execute(text("SELECT version_num FROM alembic_version")).scalar()
