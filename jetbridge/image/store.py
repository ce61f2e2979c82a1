"""The embedded image directory: data in files named by the image's id, all else in the table ``images``.

A file under its image's id is whole, inspected and never changes: uploads go to a temporary name beside it and are
renamed at the end. Whoever may open the folder may therefore use ``path`` without asking.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import logging
import os
import shutil
import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from jetbridge.db import images as rows
from jetbridge.db.engine import Database
from jetbridge.errors import Conflict, Invalid, NotFound, ServiceUnavailable, TooLarge
from jetbridge.image import tiny
from jetbridge.image.formats import inspect
from jetbridge.model.context import ADMIN_ID
from jetbridge.model.image import Image, ImageStatus, Visibility

logger = logging.getLogger(__name__)

MAX_BYTES = 1 << 40
"""No image is larger than this (1 TiB): of the upload, and of the disk a guest sees."""

TINY_ID = str(uuid.uuid5(uuid.NAMESPACE_DNS, "tiny.images.jetbridge"))
"""The built-in image has the same id everywhere."""

_UPLOADING = ".uploading"
_INSTALLED = ".builtin-installed"


def utc_now() -> datetime:
    return datetime.now(UTC).replace(tzinfo=None)


class ImageDirectory:
    """``folder`` is made when it doesn't exist. One process at a time uploads into it."""

    def __init__(
        self,
        database: Database,
        folder: Path,
        *,
        max_bytes: int = MAX_BYTES,
        clock: Callable[[], datetime] = utc_now,
    ) -> None:
        self.database = database
        self.folder = folder
        self.max_bytes = max_bytes
        self.clock = clock
        folder.mkdir(parents=True, exist_ok=True)

    # --- what there is ---
    def list(self) -> tuple[Image, ...]:
        """Every image of every project."""
        with self.database.read() as conn:
            return tuple(rows.listing(conn))

    def get(self, image_id: str) -> Image:
        """Raises ``NotFound``."""
        with self.database.read() as conn:
            return rows.get(conn, image_id)

    def path(self, image_id: str) -> Path:
        """The file that holds the image's data. Raises ``NotFound`` when there is no such image, or no data yet."""
        path = self.folder / image_id
        if not _is_uuid(image_id) or not path.is_file():
            raise NotFound(noun="The data of image", key=image_id)
        return path

    # --- descriptions ---
    def create(self, image: Image) -> Image:
        """Describe an image that gets its data later. Raises ``Conflict`` when its id is taken."""
        image = replace(image, status=ImageStatus.QUEUED, created_at=self.clock(), updated_at=self.clock())
        self.database.write(lambda conn: rows.insert(conn, image))
        logger.info("image %s (%s) of project %s described", image.id, image.name, image.owner)
        return image

    def update(self, image_id: str, change: Callable[[Image], Image]) -> Image:
        """Replace the image by ``change(image)``, which may raise; nobody else's change is lost."""

        def write(conn: Any) -> Image:
            before = rows.get(conn, image_id)
            after = change(before)
            if after.disk_format != before.disk_format and before.status is not ImageStatus.QUEUED:
                raise Invalid(reason="disk_format can't change once an image has data: upload it as a new image")
            after = replace(after, updated_at=self.clock())
            rows.update(conn, after)
            return after

        return self.database.write(write)

    def delete(self, image_id: str) -> None:
        """Raises ``Conflict`` while the image is protected or servers stand on its disk, ``NotFound``."""

        def forget(conn: Any) -> None:
            image = rows.get(conn, image_id)
            if image.protected:
                raise Conflict(f"Image {image_id} is protected: unset that first (openstack image set --unprotected)")
            users = rows.servers_using(conn, image_id)
            if users:
                count = "1 server" if len(users) == 1 else f"{len(users)} servers"
                raise Conflict(
                    f"Image {image_id} is the base of the disks of {count} ({', '.join(users[:3])}"
                    f"{', ...' if len(users) > 3 else ''}): delete them first"
                )
            rows.delete(conn, image_id)

        self.database.write(forget)
        # The row goes first: a file without row is cleaned up at the next start, a row without file would be a lie.
        (self.folder / image_id).unlink(missing_ok=True)
        logger.info("image %s deleted", image_id)

    # --- data ---
    def begin_upload(self, image_id: str, expected_bytes: int | None = None) -> Upload:
        """Raises ``Conflict`` unless the image waits for its data, ``TooLarge``, ``Invalid`` without formats."""
        if expected_bytes is not None:
            self._check_size(expected_bytes)

        def reserve(image: Image) -> Image:
            if image.status is not ImageStatus.QUEUED:
                raise Conflict(f"Image {image_id} is {image.status}: only a queued image takes data")
            if image.disk_format is None or image.container_format is None:
                raise Invalid(reason=f"image {image_id} needs disk_format and container_format before its data")
            return replace(image, status=ImageStatus.SAVING)

        return Upload(self, self.update(image_id, reserve))

    def upload(self, image_id: str, chunks: Iterable[bytes]) -> Image:
        """Take the data, inspect it, make the image active. What fails leaves the image queued and nothing behind.

        Raises ``Invalid`` when the content is not what ``disk_format`` says or isn't safe to open.
        """
        with self.begin_upload(image_id) as upload:
            for chunk in chunks:
                upload.write(chunk)
            return upload.finish()

    def _check_size(self, size: int) -> None:
        if size > self.max_bytes:
            raise TooLarge(noun="The image", limit=self.max_bytes)

    # --- start ---
    def install_builtin(self) -> None:
        """Call once at every start, before serving: clean up after a crash, and put ``tiny`` there the first time.

        An operator who deletes ``tiny`` doesn't get it back.
        """
        self._recover()
        marker = self.folder / _INSTALLED
        if marker.exists():
            return
        known = {image.id: image for image in self.list()}
        if TINY_ID not in known:
            self.create(
                Image(
                    id=TINY_ID,
                    owner=ADMIN_ID,
                    status=ImageStatus.QUEUED,
                    created_at=self.clock(),
                    name="tiny",
                    visibility=Visibility.PUBLIC,
                    container_format="bare",
                    disk_format="raw",
                    properties={"description": "Boots, writes one line on the serial console, halts"},
                )
            )
        if TINY_ID not in known or known[TINY_ID].status is not ImageStatus.ACTIVE:
            self.upload(TINY_ID, [tiny.tiny_disk()])
        marker.touch()

    def _recover(self) -> None:
        images = {image.id: image for image in self.list()}
        for image in images.values():
            if image.status is ImageStatus.SAVING:
                logger.warning("the upload of image %s was interrupted: it waits for its data again", image.id)
                self.update(image.id, lambda image: replace(image, status=ImageStatus.QUEUED))
        for path in self.folder.iterdir():
            active = path.name in images and images[path.name].status is ImageStatus.ACTIVE
            if path.name.endswith(_UPLOADING) or (_is_uuid(path.name) and not active):
                path.unlink(missing_ok=True)


class Upload:
    """Data on its way in. ``close`` without ``finish`` before undoes it."""

    def __init__(self, directory: ImageDirectory, image: Image) -> None:
        self.image = image
        self._directory = directory
        self._path = directory.folder / f"{image.id}{_UPLOADING}"
        self._file = self._path.open("wb")
        self._size = 0
        self._md5 = hashlib.md5(usedforsecurity=False)
        self._sha512 = hashlib.sha512()
        self._finished = False

    def __enter__(self) -> Upload:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def write(self, chunk: bytes) -> None:
        """Raises ``TooLarge``, ``ServiceUnavailable`` when the disk is full."""
        self._size += len(chunk)
        self._directory._check_size(self._size)
        with self._disk_errors():
            self._file.write(chunk)
        self._md5.update(chunk)
        self._sha512.update(chunk)

    def finish(self) -> Image:
        """Inspect what came and make the image active. Raises ``Invalid``."""
        assert self.image.disk_format is not None
        with self._disk_errors():
            self._file.flush()
            os.fsync(self._file.fileno())
            self._file.close()
        inspected = inspect(self._path, self.image.disk_format)
        if inspected.virtual_size > self._directory.max_bytes:
            raise TooLarge(noun="The image's disk", limit=self._directory.max_bytes)
        self._path.chmod(0o644)
        self._path.replace(self._directory.folder / self.image.id)
        facts: Mapping[str, Any] = {
            "status": ImageStatus.ACTIVE,
            "size": self._size,
            "virtual_size": inspected.virtual_size,
            "checksum": self._md5.hexdigest(),
            "os_hash_algo": "sha512",
            "os_hash_value": self._sha512.hexdigest(),
        }
        try:
            image = self._directory.update(self.image.id, lambda image: replace(image, **facts))
        except NotFound:
            (self._directory.folder / self.image.id).unlink(missing_ok=True)
            raise
        self._finished = True
        logger.info("image %s (%s) is active: %d bytes of %s", image.id, image.name, self._size, image.disk_format)
        return image

    def close(self) -> None:
        self._file.close()
        if self._finished:
            return
        self._path.unlink(missing_ok=True)
        with contextlib.suppress(NotFound):  # deleted meanwhile
            self._directory.update(self.image.id, lambda image: replace(image, status=ImageStatus.QUEUED))

    @contextlib.contextmanager
    def _disk_errors(self) -> Any:
        try:
            yield
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
                raise
            free = shutil.disk_usage(self._directory.folder).free
            raise ServiceUnavailable(
                reason=f"the image does not fit: {self._directory.folder} has {free} bytes left ({error.strerror})"
            ) from None


def _is_uuid(text: str) -> bool:
    try:
        return str(uuid.UUID(text)) == text
    except ValueError:
        return False
