"""A small Identity API: /identity/v3. Tokens for the users of the password file, the catalog, and names for ids."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Annotated, Any

from fastapi import APIRouter, Body, Depends, Request, Response
from fastapi.responses import JSONResponse

from jetbridge.api.auth import Authenticator, Principal, authenticator_of, principal_of
from jetbridge.api.services import ApiServices
from jetbridge.errors import Forbidden, Invalid, NotFound, Unauthorized

REGION = "RegionOne"
DOMAIN = {"id": "default", "name": "Default"}
SERVICES = (
    # type, name, path of the endpoint
    ("compute", "nova", "/compute/v2.1"),
    ("image", "glance", "/image"),
    ("identity", "keystone", "/identity/v3"),
    ("network", "neutron", "/network"),
    ("accelerator", "cyborg", "/accelerator/v2"),
)

PrincipalOf = Annotated[Principal, Depends(principal_of)]
AuthenticatorOf = Annotated[Authenticator, Depends(authenticator_of)]


def router(services: ApiServices) -> APIRouter:
    """Everything under /identity."""
    routes = APIRouter(prefix="/identity", include_in_schema=False)
    _add_documents(routes)
    _add_tokens(routes)
    _add_catalog(routes)
    _add_people(routes)
    return routes


def _base(request: Request) -> str:
    return str(request.base_url).rstrip("/")


def _stable(*parts: str) -> str:
    return hashlib.sha256(" ".join(parts).encode()).hexdigest()[:32]


def _version(request: Request) -> dict[str, Any]:
    return {
        "id": "v3.14",
        "status": "stable",
        "updated": "2020-04-07T00:00:00Z",
        "links": [{"rel": "self", "href": f"{_base(request)}/identity/v3/"}],
        "media-types": [{"base": "application/json", "type": "application/vnd.openstack.identity-v3+json"}],
    }


def _add_documents(routes: APIRouter) -> None:
    @routes.get("")
    def versions(request: Request) -> Response:
        return JSONResponse({"versions": {"values": [_version(request)]}}, status_code=300)

    @routes.get("/v3")
    def version(request: Request) -> Any:
        return {"version": _version(request)}


# --- tokens ---------------------------------------------------------------------------------------


def authenticate(authenticator: Authenticator, body: Mapping[str, Any]) -> Principal:
    """Who the body of POST /auth/tokens is. Raises ``Invalid``, ``Unauthorized``."""
    auth = _mapping(body, "auth")
    identity = _mapping(auth, "identity")
    methods = identity.get("methods")
    if methods == ["password"]:
        user = _mapping(_mapping(identity, "password"), "user")
        name, password = user.get("name"), user.get("password")
        if name is None and isinstance(user.get("id"), str):
            names = {principal.user_id: principal.user_name for principal in authenticator.principals()}
            name = names.get(user["id"], "")
        if not isinstance(name, str) or not isinstance(password, str):
            raise Invalid(reason="auth.identity.password.user needs name (or id) and password")
        principal = authenticator.check_password(name, password)
    elif methods == ["token"]:
        token = _mapping(identity, "token").get("id")
        if not isinstance(token, str):
            raise Invalid(reason="auth.identity.token needs id")
        principal, _ = authenticator.check_token(token)
    else:
        raise Unauthorized(reason=f"auth.identity.methods={methods!r}: use ['password'] or ['token']")
    _check_scope(authenticator, principal, auth.get("scope"))
    return principal


def _check_scope(authenticator: Authenticator, principal: Principal, scope: Any) -> None:
    if scope is None or scope == "unscoped" or authenticator.open_to_all:
        return
    project = scope.get("project") if isinstance(scope, Mapping) else None
    if not isinstance(project, Mapping):
        raise Unauthorized(reason="a token can only be for a project: give auth.scope.project a name or an id")
    if project.get("id") != principal.project_id and project.get("name") != principal.project_name:
        raise Unauthorized(
            reason=f"user {principal.user_name} is not in project {project.get('name') or project.get('id')!r}"
        )


def _mapping(parent: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = parent.get(key)
    if not isinstance(value, Mapping):
        raise Invalid(reason=f"the body needs an object named {key!r}")
    return value


def token_view(principal: Principal, ends: float, base: str, method: str = "password") -> dict[str, Any]:
    return {
        "token": {
            "methods": [method],
            "user": {
                "id": principal.user_id,
                "name": principal.user_name,
                "domain": DOMAIN,
                "password_expires_at": None,
            },
            "project": {"id": principal.project_id, "name": principal.project_name, "domain": DOMAIN},
            "is_domain": False,
            "roles": [{"id": _stable("role", role), "name": role} for role in sorted(principal.roles)],
            "catalog": catalog(base),
            "audit_ids": [_stable("audit", principal.user_id, str(ends))[:22]],
            "issued_at": _time(time.time()),
            "expires_at": _time(ends),
        }
    }


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _add_tokens(routes: APIRouter) -> None:
    @routes.post("/v3/auth/tokens")
    def issue(request: Request, authenticator: AuthenticatorOf, body: Annotated[dict[str, Any], Body()]) -> Response:
        principal = authenticate(authenticator, body)
        token, ends = authenticator.issue_token(principal)
        view = token_view(principal, ends, _base(request), body["auth"]["identity"]["methods"][0])
        return JSONResponse(view, status_code=201, headers={"X-Subject-Token": token})

    @routes.get("/v3/auth/tokens")
    @routes.head("/v3/auth/tokens")
    def validate(request: Request, authenticator: AuthenticatorOf, principal: PrincipalOf) -> Response:
        token = _subject(request)
        try:
            owner, ends = authenticator.check_token(token)
        except Unauthorized as error:
            raise NotFound(f"The token could not be found: {error.message}") from None
        if owner != principal and not _is_admin(principal):
            raise Forbidden(reason="this token is somebody else's")
        return JSONResponse(token_view(owner, ends, _base(request)), headers={"X-Subject-Token": token})

    @routes.delete("/v3/auth/tokens", status_code=204)
    def revoke(request: Request, authenticator: AuthenticatorOf, principal: PrincipalOf) -> None:
        token = _subject(request)
        owner, _ = authenticator.check_token(token)
        if owner != principal and not _is_admin(principal):
            raise Forbidden(reason="this token is somebody else's")
        authenticator.revoke_token(token)


def _subject(request: Request) -> str:
    token = request.headers.get("x-subject-token")
    if token is None:
        raise Invalid(reason="the header X-Subject-Token is missing: it names the token that is asked about")
    return token


def _is_admin(principal: Principal) -> bool:
    return "admin" in principal.roles


# --- catalog --------------------------------------------------------------------------------------


def catalog(base: str) -> list[dict[str, Any]]:
    """``base``: http://HOST:PORT, as the caller sees it."""
    return [
        {
            "id": _stable("service", kind),
            "type": kind,
            "name": name,
            "endpoints": [
                {
                    "id": _stable("endpoint", kind, interface),
                    "interface": interface,
                    "region": REGION,
                    "region_id": REGION,
                    "url": f"{base}{path}",
                }
                for interface in ("public", "internal", "admin")
            ],
        }
        for kind, name, path in SERVICES
    ]


def _add_catalog(routes: APIRouter) -> None:
    @routes.get("/v3/auth/catalog")
    def show_catalog(request: Request) -> Any:
        return {"catalog": catalog(_base(request)), "links": {"self": str(request.url)}}

    @routes.get("/v3/services")
    def list_services(request: Request) -> Any:
        wanted = {"type": request.query_params.get("type"), "name": request.query_params.get("name")}
        found = [
            {"id": _stable("service", kind), "type": kind, "name": name, "enabled": True}
            for kind, name, _ in SERVICES
            if wanted["type"] in (None, kind) and wanted["name"] in (None, name)
        ]
        return {"services": found, "links": _links(request)}

    @routes.get("/v3/endpoints")
    def list_endpoints(request: Request) -> Any:
        found = [
            {**endpoint, "service_id": entry["id"], "enabled": True}
            for entry in catalog(_base(request))
            for endpoint in entry["endpoints"]
        ]
        return {"endpoints": found, "links": _links(request)}

    @routes.get("/v3/regions")
    def list_regions(request: Request) -> Any:
        return {"regions": [{"id": REGION, "description": "", "parent_region_id": None}], "links": _links(request)}


def _links(request: Request) -> dict[str, Any]:
    return {"self": str(request.url), "next": None, "previous": None}


# --- people ---------------------------------------------------------------------------------------


def project_view(project_id: str, name: str) -> dict[str, Any]:
    return {
        "id": project_id,
        "name": name,
        "domain_id": DOMAIN["id"],
        "parent_id": DOMAIN["id"],
        "description": "",
        "enabled": True,
        "is_domain": False,
        "options": {},
        "tags": [],
    }


def user_view(principal: Principal) -> dict[str, Any]:
    return {
        "id": principal.user_id,
        "name": principal.user_name,
        "domain_id": DOMAIN["id"],
        "default_project_id": principal.project_id,
        "enabled": True,
        "options": {},
        "password_expires_at": None,
    }


def _seen_by(principal: Principal, authenticator: Authenticator) -> Iterable[Principal]:
    """Admins see everybody, others themselves."""
    return authenticator.principals() if _is_admin(principal) else (principal,)


def _projects(principals: Iterable[Principal]) -> list[dict[str, Any]]:
    by_id = {principal.project_id: principal.project_name for principal in principals}
    return [project_view(project_id, name) for project_id, name in sorted(by_id.items(), key=lambda item: item[1])]


def _named(views: Iterable[dict[str, Any]], request: Request) -> list[dict[str, Any]]:
    name = request.query_params.get("name")
    return [view for view in views if name in (None, view["name"])]


def _one(views: Iterable[dict[str, Any]], key: str, noun: str) -> dict[str, Any]:
    for view in views:
        if view["id"] == key:
            return view
    raise NotFound(noun=noun, key=key)


def _add_people(routes: APIRouter) -> None:
    @routes.get("/v3/projects")
    def list_projects(request: Request, authenticator: AuthenticatorOf, principal: PrincipalOf) -> Any:
        found = _named(_projects(_seen_by(principal, authenticator)), request)
        return {"projects": found, "links": _links(request)}

    @routes.get("/v3/auth/projects")
    def own_projects(request: Request, principal: PrincipalOf) -> Any:
        return {"projects": _projects([principal]), "links": _links(request)}

    @routes.get("/v3/projects/{key}")
    def show_project(key: str, authenticator: AuthenticatorOf, principal: PrincipalOf) -> Any:
        return {"project": _one(_projects(_seen_by(principal, authenticator)), key, "Project")}

    @routes.get("/v3/users")
    def list_users(request: Request, authenticator: AuthenticatorOf, principal: PrincipalOf) -> Any:
        found = _named(map(user_view, _seen_by(principal, authenticator)), request)
        return {"users": found, "links": _links(request)}

    @routes.get("/v3/users/{key}")
    def show_user(key: str, authenticator: AuthenticatorOf, principal: PrincipalOf) -> Any:
        return {"user": _one(map(user_view, _seen_by(principal, authenticator)), key, "User")}

    @routes.get("/v3/users/{key}/projects")
    def projects_of_user(key: str, request: Request, authenticator: AuthenticatorOf, principal: PrincipalOf) -> Any:
        owners = [each for each in _seen_by(principal, authenticator) if each.user_id == key]
        if not owners:
            raise NotFound(noun="User", key=key)
        return {"projects": _projects(owners), "links": _links(request)}

    @routes.get("/v3/domains")
    def list_domains(request: Request) -> Any:
        return {"domains": _named([{**DOMAIN, "enabled": True, "description": ""}], request), "links": _links(request)}

    @routes.get("/v3/domains/{key}")
    def show_domain(key: str) -> Any:
        return {"domain": _one([{**DOMAIN, "enabled": True, "description": ""}], key, "Domain")}

    @routes.get("/v3/roles")
    def list_roles(request: Request, authenticator: AuthenticatorOf, principal: PrincipalOf) -> Any:
        names = sorted({role for each in _seen_by(principal, authenticator) for role in each.roles})
        found = [{"id": _stable("role", name), "name": name, "domain_id": None} for name in names]
        return {"roles": _named(found, request), "links": _links(request)}
