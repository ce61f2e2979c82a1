"""``os-keypairs``: public keys of users, for their guests."""

from __future__ import annotations

import base64
import binascii
import hashlib
from typing import Annotated, Any, Literal

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ed25519
from fastapi import APIRouter, Query, Request, Response
from pydantic import StringConstraints

from jetbridge.api.call import Call, ComputeCall
from jetbridge.api.fields import Body, Name, Text
from jetbridge.api.microversions import check_request
from jetbridge.api.paging import Listing, cut, next_link, page_of, refuse_unknown
from jetbridge.api.server_views import microseconds
from jetbridge.db import keypairs as db
from jetbridge.db.keypairs import KeyPair
from jetbridge.errors import Invalid

router = APIRouter(tags=["keypairs"])

TYPE_SINCE = 2
OTHERS_SINCE = 10
PAGES_SINCE = 35
NOT_GENERATED_SINCE = 92
_COMMON = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_- ")


class NewKeyPair(Body):
    name: Name
    public_key: Annotated[Text, StringConstraints(min_length=1, max_length=16384)] | None = None
    type: Literal["ssh", "x509"] = "ssh"
    user_id: Annotated[Text, StringConstraints(min_length=1, max_length=255)] | None = None


class CreateKeyPair(Body):
    keypair: NewKeyPair


class KeyPairListing(Listing):
    user_id: str | None = None


def _user(call: Call, user_id: str | None) -> str:
    """Whose keys: the caller's, or from 2.10 another's, for admins."""
    if user_id is None or not call.at_least(OTHERS_SINCE) or user_id == call.context.user:
        return call.context.user
    call.require("os_compute_api:os-keypairs:others")
    return user_id


@router.post("/os-keypairs", responses={201: {"description": "From 2.2 on."}})
def create(body: CreateKeyPair, call: ComputeCall, response: Response) -> dict[str, Any]:
    new = body.keypair
    check_request("keypair", new.model_fields_set, call.version)
    if new.type != "ssh":
        raise Invalid(f"Keypair data is invalid: type={new.type!r} is not supported here, use ssh.")
    _check_name(call, new.name)
    if new.public_key is None and call.at_least(NOT_GENERATED_SINCE):
        raise Invalid(
            "Invalid input for field/attribute keypair. 'public_key' is a required property from 2.92: make the key"
            " pair yourself, for example with ssh-keygen."
        )
    private, public = (None, new.public_key) if new.public_key else generate()
    public = public.strip()
    pair = KeyPair(
        name=new.name,
        user_id=_user(call, new.user_id),
        type=new.type,
        fingerprint=fingerprint(public),
        public_key=public,
    )
    made = call.services.database.write(lambda conn: db.create(conn, pair))
    shown = {
        "name": made.name,
        "public_key": made.public_key,
        "fingerprint": made.fingerprint,
        "user_id": made.user_id,
        "type": made.type,
    }
    if private is not None:
        shown["private_key"] = private
    response.status_code = 201 if call.at_least(TYPE_SINCE) else 200
    return {"keypair": call.shape("keypair", shown)}


@router.get("/os-keypairs")
def index(listing: Annotated[KeyPairListing, Query()], request: Request, call: ComputeCall) -> dict[str, Any]:
    known = {"user_id"} if call.at_least(OTHERS_SINCE) else set()
    paged = call.at_least(PAGES_SINCE)
    refuse_unknown(call, request.query_params, known | ({"limit", "marker"} if paged else set()))
    page = page_of(listing if paged else Listing(), {})
    with call.services.database.read() as conn:
        rows = db.find(conn, _user(call, listing.user_id), page)
    shown, more = cut(rows, page)
    answer: dict[str, Any] = {"keypairs": [{"keypair": call.shape("keypair", _brief(pair))} for pair in shown]}
    if more and paged:
        answer["keypairs_links"] = next_link(request, call, "/os-keypairs", shown[-1].name)
    return answer


@router.get("/os-keypairs/{name}")
def show(name: str, call: ComputeCall, user_id: str | None = None) -> dict[str, Any]:
    with call.services.database.read() as conn:
        pair = db.get(conn, _user(call, user_id), name)
    full = {
        **_brief(pair),
        "id": pair.id,
        "user_id": pair.user_id,
        "created_at": microseconds(pair.created_at),
        "updated_at": None,
        "deleted": False,
        "deleted_at": None,
    }
    return {"keypair": call.shape("keypair", full)}


@router.delete("/os-keypairs/{name}", status_code=204, responses={202: {"description": "Before 2.2."}})
def delete(name: str, call: ComputeCall, user_id: str | None = None) -> Response:
    user = _user(call, user_id)
    call.services.database.write(lambda conn: db.delete(conn, user, name))
    return Response(status_code=204 if call.at_least(TYPE_SINCE) else 202)


def _brief(pair: KeyPair) -> dict[str, Any]:
    return {
        "name": pair.name,
        "public_key": pair.public_key,
        "fingerprint": pair.fingerprint,
        "type": pair.type,
    }


def _check_name(call: Call, name: str) -> None:
    allowed = _COMMON | frozenset("@.") if call.at_least(NOT_GENERATED_SINCE) else _COMMON
    strange = sorted(set(name) - allowed)
    if strange:
        raise Invalid(
            f"Keypair data is invalid: Keypair name contains unsafe characters: {strange[0]!r} in {name!r}. Use"
            " letters, digits, blanks, _ and -."
        )


def fingerprint(public_key: str) -> str:
    """MD5 of the key's data, as the Compute API has always shown it. Raises ``Invalid`` when it is no SSH public key."""
    words = public_key.split()
    try:
        data = base64.b64decode(words[1], validate=True)
        if not words[0].startswith("sk-"):
            serialization.load_ssh_public_key(" ".join(words[:2]).encode())
        digest = hashlib.md5(data, usedforsecurity=False).hexdigest()
    except (IndexError, ValueError, binascii.Error, UnsupportedAlgorithm):
        raise Invalid(
            "Keypair data is invalid: failed to generate fingerprint, public_key is not an SSH public key. Send the"
            " line of a .pub file, such as 'ssh-ed25519 AAAA... name'."
        ) from None
    return ":".join(digest[start : start + 2] for start in range(0, len(digest), 2))


def generate() -> tuple[str, str]:
    """Private key (OpenSSH format) and public key line of a new ed25519 pair."""
    private = ed25519.Ed25519PrivateKey.generate()
    text = private.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption()
    ).decode()
    public = private.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    return text, f"{public.decode()} Generated-by-Jetbridge"
