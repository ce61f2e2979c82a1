from __future__ import annotations

from jetbridge.pci.request import NumaPolicy, PciRequest, requests_from_json, requests_to_json

GPU = PciRequest(
    request_id="r1",
    count=2,
    spec=({"vendor_id": "10de", "product_id": "1eb8"}, {"vendor_id": "1002", "product_id": None}),
    alias_name="gpu",
    numa_policy=NumaPolicy.SOCKET,
)
PORT = PciRequest(request_id="r2", count=1, spec=({"physical_network": None},), requester_id="port-1")


def test_the_form_that_operators_query() -> None:
    assert requests_to_json([GPU, PORT]) == {
        "requests": [
            {
                "count": 2,
                "spec": [
                    {"vendor_id": "10de", "product_id": "1eb8"},
                    {"vendor_id": "1002", "product_id": None},
                ],
                "alias_name": "gpu",
                "request_id": "r1",
                "requester_id": None,
                "numa_policy": "socket",
            },
            {
                "count": 1,
                "spec": [{"physical_network": None}],
                "alias_name": None,
                "request_id": "r2",
                "requester_id": "port-1",
                "numa_policy": None,
            },
        ]
    }
    assert type(requests_to_json([GPU])["requests"][0]["numa_policy"]) is str


def test_there_and_back() -> None:
    assert requests_from_json(requests_to_json([GPU, PORT])) == (GPU, PORT)
    assert requests_from_json({"requests": []}) == ()


def test_documents_without_optional_keys_are_read() -> None:
    document = {"requests": [{"count": 1, "spec": [], "request_id": "r"}]}
    assert requests_from_json(document) == (PciRequest(request_id="r", count=1, spec=()),)


def test_policy_and_source() -> None:
    assert (GPU.policy, PORT.policy) == (NumaPolicy.SOCKET, NumaPolicy.LEGACY)
    assert (GPU.from_port, PORT.from_port) == (False, True)
