"""What a connection asks of its node. Answers come back as calls on the channel, at once or in a later turn."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mypy_extensions import mypyc_attr

if TYPE_CHECKING:
    from flockmq.mqtt.errors import PacketError
    from flockmq.mqtt.packets import Connect
    from flockmq.session.channel import Channel
    from flockmq.session.inbound import Inbound
    from flockmq.session.publish import Publish
    from flockmq.session.subscribing import Subscribing
    from flockmq.session.subscription import Subscription


@mypyc_attr(allow_interpreted_subclasses=True)
class NodePort:
    """Implemented by the node; nothing here may block."""

    def admit(self, channel: Channel, connect: Connect) -> None:
        """Authenticate, and make this the one connection of its client id: `channel.admitted` or `channel.refuse`."""
        raise NotImplementedError

    def gone(self, channel: Channel) -> None:
        """An admitted connection ended; its subscriptions are out of the router already."""
        raise NotImplementedError

    def routed(self, subscribing: Subscribing) -> None:
        """Have the cluster route `subscribing.filters` to this node, and, where `subscribing.retained` are owed
        something, see all that is retained by then (`saw_retained`); then `subscribing.finish`.
        """
        raise NotImplementedError

    def is_routed(self, filter: bytes) -> bool:
        """This node's own table routes by the filter to this node."""
        raise NotImplementedError

    def send_retained(self, subscriptions: list[Subscription], saw_all: bool) -> None:
        """Give new subscriptions of one session what is retained, as fast as their client reads. `saw_all`: this node
        has it; what it hears of from now on is delivered live.
        """
        raise NotImplementedError

    def unrouted(self, filters: list[bytes]) -> None:
        """No client of this node subscribes to these filters any more."""
        raise NotImplementedError

    def retain(self, inbound: Inbound) -> None:
        """Write a retained message to the log, see all earlier routes, then `inbound.logged`."""
        raise NotImplementedError

    def publish(self, message: Publish) -> None:
        """A message that no connection waits for: a will."""
        raise NotImplementedError

    def flush_soon(self) -> None:
        """Something was put outside a turn: have it written."""
        raise NotImplementedError

    def violated(self, channel: Channel, error: PacketError) -> None:
        """The client broke the protocol and is being closed: say so in the log."""
        raise NotImplementedError
