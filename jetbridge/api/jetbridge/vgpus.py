"""/jetbridge/v1 of vGPUs: the types that cards carry, and the vGPUs that exist."""

from __future__ import annotations

from collections import Counter
from typing import Any

from fastapi import APIRouter

from jetbridge.api.call import ContextOf
from jetbridge.api.jetbridge.access import PREFIX, require_admin
from jetbridge.api.services import ApiServices
from jetbridge.db import compute_nodes, vgpu_cards, vgpus
from jetbridge.db import services as service_rows
from jetbridge.db.clock import utcnow
from jetbridge.db.vgpu_cards import ListedCard
from jetbridge.db.vgpus import ListedVgpu
from jetbridge.mdev.cards import CardType
from jetbridge.mdev.values import Instance, Kind


def router(services: ApiServices) -> APIRouter:
    routes = APIRouter(prefix=PREFIX, include_in_schema=False)

    @routes.get("/vgpus/types")
    def types(context: ContextOf, host: str | None = None) -> Any:
        require_admin(context, "listing vGPU types")
        with services.database.read() as conn:
            if host is not None:
                compute_nodes.of_host(conn, host)
            cards = vgpu_cards.listing(conn, host)
            up = service_rows.up(conn, utcnow(), services.settings.service_down_time)
            used = Counter(
                (one.host, one.vgpu.card, one.vgpu.type)
                for one in vgpus.listing(conn, host)
                if one.vgpu.server is not None
            )
        return {
            "types": [
                {
                    **_type_view(card, kind, used[card.host, card.card.name, kind.type]),
                    "host_state": "up" if card.host in up else "down",
                }
                for card in cards
                for kind in card.card.types
            ]
        }

    @routes.get("/vgpus")
    def listing(context: ContextOf, host: str | None = None) -> Any:
        require_admin(context, "listing vGPUs")
        with services.database.read() as conn:
            if host is not None:
                compute_nodes.of_host(conn, host)
            ours = [_vgpu_view(one) for one in vgpus.listing(conn, host)]
            foreign = [
                _foreign_view(card, instance)
                for card in vgpu_cards.listing(conn, host)
                for instance in card.card.foreign
            ]
        return {"vgpus": sorted([*ours, *foreign], key=lambda view: (view["host"], view["parent"], view["uuid"] or ""))}

    return routes


def _type_view(card: ListedCard, kind: CardType, used: int) -> dict[str, Any]:
    """``total`` and ``resource_class`` are null for types that the configuration doesn't offer on that card."""
    return {
        "host": card.host,
        "parent": card.card.name,
        "address": card.card.address,
        "kind": card.card.kind.value,
        "functions": card.card.functions,
        "type": kind.type,
        "name": kind.name,
        "available": kind.available,
        "resource_class": kind.resource_class,
        "total": kind.total,
        "used": used,
    }


def _vgpu_view(one: ListedVgpu) -> dict[str, Any]:
    """VFs with a vendor's type have no UUID that others would know."""
    return {
        "uuid": one.vgpu.uuid if one.vgpu.kind is Kind.MDEV else None,
        "host": one.host,
        "parent": one.vgpu.parent,
        "kind": one.vgpu.kind.value,
        "type": one.vgpu.type,
        "resource_class": one.vgpu.resource_class,
        "owner": "jetbridge",
        "state": one.vgpu.state.value,
        "instance_uuid": one.vgpu.server,
        "server_name": one.server_name,
    }


def _foreign_view(card: ListedCard, instance: Instance) -> dict[str, Any]:
    return {
        "uuid": instance.uuid or None,
        "host": card.host,
        "parent": instance.parent,
        "kind": card.card.kind.value,
        "type": instance.type,
        "resource_class": None,
        "owner": "foreign",
        "state": "ready" if instance.active else "defined",
        "instance_uuid": None,
        "server_name": None,
    }
