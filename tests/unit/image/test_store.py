from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from pathlib import Path

import pytest

from jetbridge.db.engine import Database
from jetbridge.errors import Conflict, Invalid, JetbridgeError, NotFound, TooLarge
from jetbridge.image import tiny
from jetbridge.image.store import TINY_ID, ImageDirectory
from jetbridge.model.image import Image, ImageStatus
from tests.unit.image.files import MIB, iso, qcow2, vmdk

IMAGE_ID = "11111111-2222-4333-8444-555555555555"


@pytest.fixture
def images(database: Database, tmp_path: Path) -> ImageDirectory:
    return ImageDirectory(database, tmp_path / "images", max_bytes=2 * MIB)


def described(disk_format: str | None, **more: object) -> Image:
    image = Image(
        id=IMAGE_ID,
        owner="p1",
        status=ImageStatus.QUEUED,
        created_at=datetime.min,
        container_format="bare",
        disk_format=disk_format,
    )
    return replace(image, **more)  # type: ignore[arg-type]


def files_of(images: ImageDirectory) -> list[str]:
    return sorted(path.name for path in images.folder.iterdir())


def test_upload_makes_the_image_active_with_checksums(images: ImageDirectory) -> None:
    images.create(described("raw"))
    image = images.upload(IMAGE_ID, [b"a" * 1000, b"b" * 24])
    data = b"a" * 1000 + b"b" * 24
    assert (image.status, image.size, image.virtual_size) == (ImageStatus.ACTIVE, 1024, 1024)
    assert image.checksum == hashlib.md5(data).hexdigest()
    assert (image.os_hash_algo, image.os_hash_value) == ("sha512", hashlib.sha512(data).hexdigest())
    assert images.path(IMAGE_ID).read_bytes() == data
    assert images.get(IMAGE_ID) == image


def test_virtual_size_of_qcow2_is_the_disk_the_guest_sees(images: ImageDirectory) -> None:
    images.create(described("qcow2"))
    image = images.upload(IMAGE_ID, [qcow2(virtual_size=2 * MIB)])
    assert image.virtual_size == 2 * MIB
    assert image.size == 4 * 65536


@pytest.mark.parametrize(
    ("disk_format", "data", "words"),
    [
        pytest.param("qcow2", b"not qcow2" * 100, ["disk_format=qcow2", "raw"], id="qcow2 declared, raw found"),
        pytest.param("raw", qcow2(), ["disk_format=raw", "qcow2"], id="raw declared, qcow2 found"),
        pytest.param("aki", qcow2(), ["disk_format=aki", "qcow2"], id="kernel declared, qcow2 found"),
        pytest.param("raw", vmdk(), ["disk_format=raw", "vmdk", "qemu-img convert"], id="raw declared, vmdk found"),
        pytest.param("qcow2", iso(), ["disk_format=qcow2", "iso"], id="qcow2 declared, iso found"),
        pytest.param("qcow2", qcow2(backing_offset=512), ["backing file", "qemu-img convert"], id="backing file"),
        pytest.param("qcow2", qcow2(features=0b100), ["data in another file"], id="data file"),
        pytest.param("qcow2", qcow2(features=1 << 40), ["features that are not known"], id="unknown features"),
        pytest.param("qcow2", qcow2(version=1), ["refused"], id="version 1"),
        pytest.param("qcow2", qcow2()[:40], ["disk_format=qcow2"], id="cut header"),
    ],
)
def test_uploads_that_are_not_what_they_say_or_not_safe_are_refused(
    images: ImageDirectory, disk_format: str, data: bytes, words: list[str]
) -> None:
    images.create(described(disk_format))
    with pytest.raises(Invalid) as refusal:
        images.upload(IMAGE_ID, [data])
    assert [word for word in words if word not in refusal.value.message] == []
    assert images.get(IMAGE_ID).status is ImageStatus.QUEUED
    assert files_of(images) == []


@pytest.mark.parametrize(
    ("disk_format", "data"),
    [
        pytest.param("raw", tiny.tiny_disk(), id="raw with a partition table"),
        pytest.param("raw", b"", id="empty"),
        pytest.param("aki", tiny.tiny_disk(), id="a kernel looks like a boot sector"),
        pytest.param("iso", iso(), id="iso"),
        pytest.param("iso", tiny.boot_sector() + iso()[512:], id="hybrid iso"),
        pytest.param("qcow2", qcow2(version=2, virtual_size=MIB), id="qcow2 version 2"),
    ],
)
def test_content_that_fits_its_declaration_is_accepted(images: ImageDirectory, disk_format: str, data: bytes) -> None:
    images.create(described(disk_format))
    assert images.upload(IMAGE_ID, [data]).status is ImageStatus.ACTIVE


def test_size_limit_holds_for_the_announced_size_for_the_data_and_for_the_guests_disk(images: ImageDirectory) -> None:
    images.create(described("qcow2"))
    with pytest.raises(TooLarge, match=str(2 * MIB)):
        images.begin_upload(IMAGE_ID, expected_bytes=2 * MIB + 1)
    with pytest.raises(TooLarge):
        images.upload(IMAGE_ID, [qcow2(), b"0" * (2 * MIB)])
    with pytest.raises(TooLarge, match="disk"):
        images.upload(IMAGE_ID, [qcow2(virtual_size=1 << 60)])
    assert images.get(IMAGE_ID).status is ImageStatus.QUEUED
    assert files_of(images) == []


def test_an_image_takes_data_once(images: ImageDirectory) -> None:
    images.create(described("raw"))
    images.upload(IMAGE_ID, [b"first"])
    with pytest.raises(Conflict, match="active"):
        images.upload(IMAGE_ID, [b"second"])
    assert images.path(IMAGE_ID).read_bytes() == b"first"


def test_two_uploads_at_once_do_not_mix(images: ImageDirectory) -> None:
    images.create(described("raw"))
    with images.begin_upload(IMAGE_ID) as first:
        first.write(b"first")
        with pytest.raises(Conflict, match="saving"):
            images.begin_upload(IMAGE_ID)
        first.finish()
    assert images.path(IMAGE_ID).read_bytes() == b"first"


def test_data_before_formats_are_known_is_refused(images: ImageDirectory) -> None:
    images.create(described(None))
    with pytest.raises(Invalid, match="disk_format"):
        images.upload(IMAGE_ID, [b"x"])


def test_image_deleted_during_its_upload_leaves_nothing(images: ImageDirectory) -> None:
    images.create(described("raw"))
    with images.begin_upload(IMAGE_ID) as upload:
        upload.write(b"x")
        images.delete(IMAGE_ID)
        with pytest.raises(NotFound):
            upload.finish()
    assert files_of(images) == []


def test_delete_removes_row_and_file_but_not_a_protected_image(images: ImageDirectory) -> None:
    images.create(described("raw", protected=True))
    images.upload(IMAGE_ID, [b"x"])
    with pytest.raises(Conflict, match="protected"):
        images.delete(IMAGE_ID)
    assert images.path(IMAGE_ID).is_file()
    images.update(IMAGE_ID, lambda image: replace(image, protected=False))
    images.delete(IMAGE_ID)
    assert files_of(images) == []
    with pytest.raises(NotFound):
        images.get(IMAGE_ID)


def test_disk_format_is_fixed_once_there_is_data(images: ImageDirectory) -> None:
    images.create(described("raw"))
    images.upload(IMAGE_ID, [b"x"])
    with pytest.raises(Invalid, match="disk_format"):
        images.update(IMAGE_ID, lambda image: replace(image, disk_format="qcow2"))


@pytest.mark.parametrize("key", ["../jetbridge.sqlite3", "..", "", ".builtin-installed", "x", IMAGE_ID])
def test_path_never_leaves_the_folder(images: ImageDirectory, key: str) -> None:
    images.install_builtin()
    with pytest.raises(NotFound):
        images.path(key)


def test_builtin_image_is_there_after_the_first_start(images: ImageDirectory) -> None:
    images.install_builtin()
    (image,) = images.list()
    assert (image.name, image.status, image.visibility, image.disk_format) == ("tiny", "active", "public", "raw")
    assert images.path(TINY_ID).read_bytes() == tiny.tiny_disk()


def test_builtin_image_that_was_deleted_stays_away(images: ImageDirectory) -> None:
    images.install_builtin()
    images.delete(TINY_ID)
    images.install_builtin()
    assert images.list() == ()


def _killed_while_saving(images: ImageDirectory) -> None:
    images.create(described("raw"))
    images.begin_upload(IMAGE_ID).write(b"half")


def _killed_after_the_rename(images: ImageDirectory) -> None:
    images.create(described("raw"))
    images.begin_upload(IMAGE_ID)
    (images.folder / IMAGE_ID).write_bytes(b"whole, but not recorded")


@pytest.mark.parametrize("crash", [_killed_while_saving, _killed_after_the_rename])
def test_an_upload_cut_by_a_crash_can_be_made_again(
    images: ImageDirectory, crash: Callable[[ImageDirectory], None]
) -> None:
    crash(images)
    again = ImageDirectory(images.database, images.folder)
    again.install_builtin()
    assert again.get(IMAGE_ID).status is ImageStatus.QUEUED
    with pytest.raises(JetbridgeError):
        again.path(IMAGE_ID)
    assert again.upload(IMAGE_ID, [b"data"]).status is ImageStatus.ACTIVE


def test_file_of_a_deleted_image_goes_at_the_next_start(images: ImageDirectory) -> None:
    (images.folder / IMAGE_ID).write_bytes(b"the process died between row and file")
    images.install_builtin()
    assert files_of(images) == sorted([".builtin-installed", TINY_ID])
