"""One device, one owner: which ways of giving away a function a host's configuration names. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from jetbridge.errors import InvalidConfiguration

Claims = Mapping[str, str]
"""Address of each function that one section gives away, to the line of that section for messages."""


def check_one_owner(host: str, ways: Sequence[Claims]) -> None:
    """Raises ``InvalidConfiguration`` naming a function that two sections would give to guests, and both lines."""
    seen: dict[str, str] = {}
    for claims in ways:
        for address, line in sorted(claims.items()):
            if address in seen:
                raise InvalidConfiguration(
                    f"Function {address} of host {host} would be given to guests twice: by {seen[address]}, and by {line}. Take it out of"
                    " one of the two, for example by an address that is more exact"
                )
        seen.update(claims)
