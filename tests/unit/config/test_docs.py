"""docs/configure.md lists every option as the program knows it."""

from __future__ import annotations

from pathlib import Path

from jetbridge.config.options import SETTINGS, groups
from jetbridge.config.setting import Setting, default_of
from jetbridge.config.type_sections import GROUP as TYPE_GROUP
from jetbridge.config.type_sections import TYPE_SETTINGS

CONFIGURE = Path(__file__).parents[3] / "docs" / "configure.md"


def shown_default(setting: Setting) -> str:
    value = default_of(setting)
    if value is None or value == ():
        return "none"
    if isinstance(value, tuple):
        return "`" + ",".join(value) + "`"
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"


def option_tables() -> str:
    lines: list[str] = []
    for group in (*groups(), TYPE_GROUP):
        lines += [f"### [{group}]", "", "| option | default | meaning |", "|---|---|---|"]
        for setting in (*SETTINGS, *TYPE_SETTINGS):
            if setting.group == group:
                explained = str(setting.option.help).replace("|", "\\|")
                lines.append(f"| `{setting.name}` | {shown_default(setting)} | {explained} |")
        lines.append("")
    return "\n".join(lines)


def test_the_options_are_documented_as_they_are() -> None:
    assert option_tables() in CONFIGURE.read_text(), "docs/configure.md, Options, should read:\n\n" + option_tables()
