"""What --help shows for the value of an option: a word for it, and nothing for a switch."""

from __future__ import annotations

from typing import Any

_WORDS = {"config_file": "FILE", "fleet": "FILE", "state_dir": "FOLDER", "listen": "ADDRESS"}


def with_plain_values(command: Any, parent: Any = None) -> Any:
    """The command and all below it, with a word for the value of each option: by itself the parser shows types of the program,
    ``<list[Path]>`` and ``<bool>``."""
    context = command.context_class(command, parent=parent, **command.context_settings)
    for parameter in (*command.params, command.get_help_option(context)):
        if parameter is not None and parameter.param_type_name == "option" and parameter.metavar is None:
            name = str(parameter.name)
            parameter.metavar = "" if parameter.is_flag else _WORDS.get(name, name.upper())
    for below in getattr(command, "commands", {}).values():
        with_plain_values(below, context)
    return command
