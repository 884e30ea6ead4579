"""A plugin that keeps strangers out, greets who comes, and shouts what is said in the hall."""

from __future__ import annotations

import msgspec

from flockmq.plugins import (
    CLIENT_CONNECT,
    CLIENT_CONNECTED,
    MESSAGE_PUBLISH,
    Client,
    Context,
    Deny,
    Message,
)

BANNED = 0x8A


class Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    greeting: str
    strangers: tuple[str, ...] = ()


class Greeter:
    name = "greeter"

    def start(self, context: Context) -> None:
        self.context = context
        self.settings = msgspec.convert(context.settings, Settings)
        context.hook(CLIENT_CONNECT, self.judge, priority=10)
        context.hook(CLIENT_CONNECTED, self.greet)
        context.hook(MESSAGE_PUBLISH, self.shout, filters=["hall/#"])

    def stop(self) -> None:
        self.context.log.info("goodbye")

    def judge(self, client: Client) -> Deny | None:
        return Deny(BANNED) if client.client_id in self.settings.strangers else None

    def greet(self, client: Client) -> None:
        text = f"{self.settings.greeting}, {client.client_id} from {client.host}"
        self.context.publish("hall/greetings", text.encode(), qos=1)

    def shout(self, message: Message) -> Message:
        text = message.payload.decode()  # which raises for what isn't text
        return msgspec.structs.replace(message, payload=text.upper().encode())
