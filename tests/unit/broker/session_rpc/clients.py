"""The client that tests connect, and what it is answered."""

from __future__ import annotations

from flockmq.mqtt.message import publication
from flockmq.routing.slots import slot_of
from flockmq.session_rpc import messages
from flockmq.session_rpc.messages import Admission, AttachError
from unit.broker.session_rpc.network import Network, Node

ID = b"client"
DURABLE_REQUEST = messages.SessionRequest(5, False, 60, 32, 0, "default", b"a nonce!")
WILL = messages.WillRow(0, 4, publication(4, 1, True, b"w", b"gone", b"").packet)
CLEAN_REQUEST = messages.SessionRequest(4, True, 0, 32, 0, "default", b"a nonce!", WILL)
"""Of a session that is at its node."""


def owner_of(network: Network, client_id: bytes = ID) -> Node:
    return network.nodes[network.owners[slot_of(client_id)]]


def token_of(answers: list[Admission | AttachError]) -> int:
    (answer,) = answers
    assert isinstance(answer, Admission)
    return answer.token


async def connected(
    network: Network, node: Node, request: messages.SessionRequest = DURABLE_REQUEST
) -> list[Admission | AttachError]:
    answers = node.clients.connect(ID, request)
    await network.settle()
    return answers
