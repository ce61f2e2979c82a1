"""docs/auth.md: its password file is one, and opens what the page says."""

from __future__ import annotations

import re
from pathlib import Path

import yaml

from jetbridge.api.auth import Authenticator, read_password_file

PAGE = (Path(__file__).parents[3] / "docs" / "auth.md").read_text()


def block(language: str) -> str:
    found = re.search(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)
    assert found is not None
    return found[1]


def test_the_password_file_and_the_cloud_of_the_page_belong_together(tmp_path: Path) -> None:
    path = tmp_path / "users"
    path.write_text(block("text"))
    users = read_password_file(path)
    assert {name: (entry.principal.project_name, min(entry.principal.roles)) for name, entry in users.items()} == {
        "alice": ("ops", "admin"),
        "bob": ("research", "member"),
    }
    auth = yaml.safe_load(block("yaml"))["clouds"]["jetbridge"]["auth"]
    alice = Authenticator(users).check_password(auth["username"], auth["password"])
    assert alice.project_name == auth["project_name"]
