from __future__ import annotations

import re
from typing import Any

import pytest

from tests.unit.api.clouds import Cloud


@pytest.fixture(scope="module")
def document(shared: Cloud) -> dict[str, Any]:
    found: dict[str, Any] = shared.client.get("/openapi.json").json()
    return found


def test_wrong_input_is_documented_as_it_is_answered(document: dict[str, Any]) -> None:
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            assert "422" not in operation["responses"], (method, path)
            assert "4XX" in operation["responses"], (method, path)
    assert "HTTPValidationError" not in document["components"]["schemas"]


def test_every_reference_leads_somewhere(document: dict[str, Any]) -> None:
    wanted = set(re.findall(r"#/components/schemas/([^'\"]+)", str(document)))
    assert wanted <= set(document["components"]["schemas"])


def test_bodies_filters_and_versions_are_documented(document: dict[str, Any]) -> None:
    boot = document["paths"]["/compute/v2.1/servers"]["post"]
    reference = boot["requestBody"]["content"]["application/json"]["schema"]["$ref"]
    schema = document["components"]["schemas"][reference.rpartition("/")[2]]
    assert schema["additionalProperties"] is False
    assert "OS-SCH-HNT:scheduler_hints" in schema["properties"]
    listed = document["paths"]["/compute/v2.1/servers"]["get"]["parameters"]
    assert {"all_tenants", "changes-since", "OpenStack-API-Version"} <= {each["name"] for each in listed}


def test_every_operation_has_one_name(document: dict[str, Any]) -> None:
    names = [operation["operationId"] for path in document["paths"].values() for operation in path.values()]
    assert len(names) == len(set(names))
