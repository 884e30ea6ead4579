"""From CONNECT to a session and CONNACK: what the packet asks for, within the zone's limits.

Pure functions between `channel` and the node, which authenticates the client and finds its session.
"""

from __future__ import annotations

from typing import Final

from flockmq.mqtt import encode, frame
from flockmq.mqtt.errors import PacketError
from flockmq.mqtt.message import NO_EXPIRY, Will, publication
from flockmq.mqtt.packets import Connect
from flockmq.mqtt.properties import Properties
from flockmq.mqtt.properties import encode as encode_properties
from flockmq.mqtt.reason import Reason
from flockmq.mqtt.topic_aliases import OutgoingAliases
from flockmq.protocol import strict_mode
from flockmq.routing.sink import Sink
from flockmq.session.client_session import ClientSession
from flockmq.session.limits import Limits
from flockmq.session.local_session import LocalSession

RECEIVE_MAXIMUM: Final = 65_535


def check(connect: Connect, limits: Limits) -> None:
    """Raises PacketError if the zone doesn't allow the CONNECT."""
    if len(connect.client_id) > limits.max_clientid_len:
        raise PacketError(
            Reason.CLIENT_IDENTIFIER_NOT_VALID,
            "section 3.1.3.1",
            f"client id of {len(connect.client_id)} bytes; max_clientid_len is {limits.max_clientid_len}",
        )
    if limits.strict_mode:
        strict_mode.check_connect(connect)
    will = connect.will
    if will is None:
        return
    if will.qos > limits.max_qos_allowed:
        raise PacketError(Reason.QOS_NOT_SUPPORTED, "MQTT-3.2.2-12", f"will with QoS {will.qos}")
    if will.retain and not limits.retain_available:
        raise PacketError(Reason.RETAIN_NOT_SUPPORTED, "MQTT-3.2.2-13", "will with RETAIN")
    if will.topic.count(b"/") >= limits.max_topic_levels:
        what = f"will to a topic of more than {limits.max_topic_levels} levels"
        raise PacketError(Reason.TOPIC_NAME_INVALID, "section 4.7.3", what)


def will_of(connect: Connect, version: int) -> Will | None:
    asked = connect.will
    if asked is None:
        return None
    own = asked.properties
    encoded = encode_properties(frame.PUBLISH, own)
    expiry_s = NO_EXPIRY
    delay_s = 0
    if own is not None:
        if own.message_expiry_interval is not None:
            expiry_s = own.message_expiry_interval
        delay_s = own.will_delay_interval or 0
    message = publication(version, asked.qos, asked.retain, asked.topic, asked.payload, encoded, expiry_s)
    return Will(message, delay_s)


def session_of(sink: Sink, connect: Connect, limits: Limits) -> LocalSession:
    """A new session for this CONNECT."""
    receive_maximum = RECEIVE_MAXIMUM
    max_packet_bytes = 0
    aliases: OutgoingAliases | None = None
    expiry_s = 0 if connect.clean_start or connect.version == 5 else limits.session_expiry_interval
    properties = connect.properties
    if properties is not None:
        expiry_s = min(properties.session_expiry_interval or 0, limits.max_session_expiry_interval)
        receive_maximum = properties.receive_maximum or RECEIVE_MAXIMUM
        max_packet_bytes = properties.maximum_packet_size or 0
        if properties.topic_alias_maximum:
            aliases = OutgoingAliases(properties.topic_alias_maximum, max_packet_bytes)
    window = min(limits.max_inflight, receive_maximum)
    session = LocalSession(sink, connect.client_id, limits, window, max_packet_bytes, expiry_s)
    session.aliases = aliases
    return session


def connack(
    connect: Connect, limits: Limits, session: ClientSession, present: bool, authentication: Properties | None = None
) -> bytes:
    """The CONNACK for an admitted connection: says where this server differs from MQTT's defaults (section 3.2.2.3).
    `authentication`: method and data of an enhanced authentication.
    """
    if connect.version != 5:
        return encode.connack(connect.version, Reason.SUCCESS, present)
    asked = connect.properties
    offer = Properties()
    offer.receive_maximum = limits.max_awaiting_rel
    offer.maximum_packet_size = limits.max_packet_size
    if limits.max_topic_alias:
        offer.topic_alias_maximum = limits.max_topic_alias
    if limits.max_qos_allowed < 2:
        offer.maximum_qos = limits.max_qos_allowed
    if not limits.retain_available:
        offer.retain_available = 0
    if not limits.wildcard_subscription:
        offer.wildcard_subscription_available = 0
    if not limits.shared_subscription:
        offer.shared_subscription_available = 0
    if limits.server_keepalive:
        offer.server_keep_alive = limits.server_keepalive
    if not connect.client_id:
        offer.assigned_client_identifier = session.client_id  # [MQTT-3.1.3-7]
    if asked is not None:
        if asked.session_expiry_interval and asked.session_expiry_interval != session.expiry_s:
            offer.session_expiry_interval = session.expiry_s
        if asked.request_response_information and limits.response_information:
            offer.response_information = limits.response_information.encode()
    if authentication is not None:
        if authentication.assigned_client_identifier is not None:
            offer.assigned_client_identifier = authentication.assigned_client_identifier
        offer.authentication_method = authentication.authentication_method
        offer.authentication_data = authentication.authentication_data
    return encode.connack(5, Reason.SUCCESS, present, offer, max_bytes=session.max_packet_bytes)
