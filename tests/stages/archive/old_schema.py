"""Archives as an earlier version left them."""

from pathlib import Path

from alembic import command
from alembic.config import Config
from sqlalchemy import create_engine

from kernelwright.stages.archive import migrations
from kernelwright.stages.archive.database import writing


def make(path: Path, revision: str) -> None:
    """An empty archive at an earlier revision of the schema."""
    config = Config()
    config.set_main_option("script_location", str(Path(migrations.__file__).parent))
    with writing(create_engine(f"sqlite:///{path}")).begin() as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, revision)
