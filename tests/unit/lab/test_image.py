"""When the lab's environment is built anew."""

from pathlib import Path

from lab.image import environment_facts


def make_venv(folder: Path, *packages: str) -> Path:
    for package in packages:
        (folder / "lib" / "python3.11" / "site-packages" / package).mkdir(parents=True)
    return folder


def test_an_environment_is_told_by_its_packages_and_its_place(tmp_path: Path) -> None:
    """A project was copied with its cache: in L1 ``jetbridge`` was missing, as its first line named the other folder's Python."""
    facts = environment_facts(make_venv(tmp_path / "one", "a-1", "b-1"))
    assert environment_facts(make_venv(tmp_path / "other", "a-1", "b-1")) != facts
    assert environment_facts(make_venv(tmp_path / "one", "c-1")) != facts


def test_an_environment_that_stays_is_not_built_again(tmp_path: Path) -> None:
    venv = make_venv(tmp_path / "one", "b-1", "a-1")
    assert environment_facts(venv) == environment_facts(venv)
