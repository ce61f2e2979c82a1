"""What the options and the configuration files of a command come to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from jetbridge.cli.failures import NOT_FOUND, CliError
from jetbridge.cli.output import warn
from jetbridge.config.load import load_settings
from jetbridge.config.settings import Settings
from jetbridge.service.statedir import DATABASE_NOTE, StateDir


def settings_of(config_files: Sequence[Path] | None, database: str | None = None) -> Settings:
    """What is to be warned about is. ``database`` stands over the files."""
    loaded = load_settings(config_files or [])
    for warning in loaded.warnings:
        warn(warning)
    return replace(loaded.settings, database_connection=database) if database else loaded.settings


def database_url(settings: Settings, folder: Path) -> str:
    """The URL of the database that belongs to a state folder. Raises ``CliError`` when its service uses another that wasn't named."""
    if settings.database_connection:
        return settings.database_connection
    note = folder / DATABASE_NOTE
    if note.is_file():
        raise CliError(
            f"the service of {folder} keeps its data in {note.read_text(encoding='utf-8').strip()}: give the --config-file that names it, "
            "or the URL in JETBRIDGE_DATABASE",
            NOT_FOUND,
        )
    return StateDir(folder).database_url
