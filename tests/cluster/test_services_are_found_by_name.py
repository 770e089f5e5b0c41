"""What stands in for kube-proxy and CoreDNS in the test cluster: the right endpoints, the right DNS answers."""

from __future__ import annotations

import struct

from tests.cluster.controlplane.services import Table, answer


def table() -> Table:
    ports = [{"name": "http", "port": 8080}]
    ready = {"addresses": ["10.244.0.5"], "conditions": {"ready": True}, "hostname": "web-0"}
    other = {"addresses": ["10.244.0.6"], "conditions": {"ready": False}}

    def slice_of(name: str) -> dict[str, object]:
        labels = {"kubernetes.io/service-name": name}
        return {
            "metadata": {"namespace": "shop", "name": f"{name}-1", "labels": labels},
            "ports": ports,
            "endpoints": [ready, other],
        }

    def service(address: str) -> dict[str, object]:
        return {"spec": {"clusterIP": address, "ports": [{"name": "http", "port": 80}]}}

    return Table(
        services={("shop", "web"): service("10.96.0.7"), ("shop", "flat"): service("None")},
        slices={("shop", "web-1"): slice_of("web"), ("shop", "flat-1"): slice_of("flat")},
    )


def question(name: str, kind: int = 1) -> bytes:
    labels = b"".join(bytes([len(label)]) + label.encode() for label in name.split("."))
    return b"\x12\x34" + struct.pack("!HHHHH", 0x0100, 1, 0, 0, 0) + labels + b"\0" + struct.pack("!HH", kind, 1)


def test_only_ready_endpoints_are_reached() -> None:
    assert table().endpoints(("shop", "web"), "http") == [("10.244.0.5", 8080)]
    assert table().endpoints(("shop", "web"), "other") == []


def test_a_headless_service_has_no_listener() -> None:
    assert table().listeners() == {("10.96.0.7", 80): (("shop", "web"), "http")}


def test_names_resolve_to_the_service_or_to_its_pods() -> None:
    assert table().resolve("web.shop.svc.cluster.local") == ["10.96.0.7"]
    assert table().resolve("flat.shop.svc.cluster.local.") == ["10.244.0.5"]
    assert table().resolve("web-0.flat.shop.svc.cluster.local") == ["10.244.0.5"]
    assert table().resolve("gone.shop.svc.cluster.local") is None
    assert table().resolve("web") is None


def test_dns_answers_carry_the_address_or_say_that_the_name_is_unknown() -> None:
    found = answer(question("web.shop.svc.cluster.local"), table())
    assert found[:2] == b"\x12\x34"
    assert found[-4:] == bytes([10, 96, 0, 7])
    assert struct.unpack_from("!HH", found, 4) == (1, 1)
    unknown = answer(question("web"), table())
    assert struct.unpack_from("!H", unknown, 2)[0] & 0xF == 3
    other_type = answer(question("web.shop.svc.cluster.local", kind=28), table())
    assert struct.unpack_from("!HHH", other_type, 2)[2] == 0
    assert struct.unpack_from("!H", other_type, 2)[0] & 0xF == 0
