"""Who sees and who changes an image."""

from __future__ import annotations

from jetbridge.errors import Forbidden, NotFound
from jetbridge.model.context import RequestContext
from jetbridge.model.image import Image, Visibility


def may_use(context: RequestContext, image: Image) -> bool:
    return may_change(context, image) or image.visibility in (Visibility.PUBLIC, Visibility.COMMUNITY)


def may_change(context: RequestContext, image: Image) -> bool:
    return context.is_admin or context.project == image.owner


def require_use(context: RequestContext, image: Image) -> None:
    """Raises ``NotFound``: whoever may not use an image doesn't learn that it exists."""
    if not may_use(context, image):
        raise NotFound(noun="Image", key=image.id)


def require_change(context: RequestContext, image: Image) -> None:
    """Raises ``NotFound`` or, for an image that can be used but belongs to another project, ``Forbidden``."""
    require_use(context, image)
    if not may_change(context, image):
        raise Forbidden(reason=f"image {image.id} belongs to another project")


def require_visibility(context: RequestContext, visibility: Visibility) -> None:
    """Raises ``Forbidden``: only admins put an image before everybody."""
    if visibility is Visibility.PUBLIC and not context.is_admin:
        raise Forbidden(reason="visibility=public needs the role admin; community lets everybody use the image as well")
