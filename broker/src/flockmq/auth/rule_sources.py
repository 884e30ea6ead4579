"""Sources of access rules: this node's file, the log, and HTTP services."""

from __future__ import annotations

import logging
import tomllib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, Protocol

import msgspec

from flockmq import strict_json
from flockmq.auth.http_service import HttpService, Unanswered
from flockmq.auth.rules import CLIENT_VALUES, Rules, Subject, compile_rules
from flockmq.bounds import CONFIG_MAX_BYTES, RULES_COMPILED_MAX
from flockmq.clock import Clock
from flockmq.config.auth_settings import FileSourceSettings, HttpSourceSettings, RuleSettings
from flockmq.errors import ConfigError
from flockmq.protocol.client import PUBLISH

log: Final = logging.getLogger(__name__)

USERNAME: Final = "username"
CLIENTID: Final = "clientid"
ALL: Final = "all"
OF: Final = (CLIENTID, USERNAME, ALL)
"""Whom rules in the log can be for, in the order in which they are checked."""

Lookup = Callable[[tuple[str, str]], bytes | None]
ACTION_VALUES: Final = (*CLIENT_VALUES, "action", "topic", "qos", "retain")
DENY_ALL: Final = Rules([RuleSettings(permit="deny")])


class Source(Protocol):
    """A source that decides without I/O."""

    def decide(self, subject: Subject, action: int, topic: bytes, qos: int, retain: bool) -> bool | None:
        """Whether the client may do this; None if no rule matches."""
        ...

    def about(self, subject: Subject) -> Sequence[Rules]:
        """All rules that decisions about this client may depend on."""
        ...


class LogRules:
    """The rules in the log. They are compiled when first needed."""

    def __init__(self, lookup: Lookup) -> None:
        self._lookup = lookup
        self._compiled: dict[tuple[str, str], Rules | None] = {}

    def decide(self, subject: Subject, action: int, topic: bytes, qos: int, retain: bool) -> bool | None:
        for rules in self.about(subject):
            if (decision := rules.decide(subject, action, topic, qos, retain)) is not None:
                return decision
        return None

    def about(self, subject: Subject) -> Sequence[Rules]:
        keys = [(CLIENTID, subject.clientid), (ALL, "")]
        if subject.username:
            keys.insert(1, (USERNAME, subject.username))
        return [rules for key in keys if (rules := self._rules(key)) is not None]

    def forget(self, key: tuple[str, str] | None) -> None:
        """These rules changed; None means that any may have."""
        if key is None:
            self._compiled.clear()
        else:
            self._compiled.pop(key, None)

    def _rules(self, key: tuple[str, str]) -> Rules | None:
        if key in self._compiled:
            return self._compiled[key]
        if len(self._compiled) >= RULES_COMPILED_MAX:
            self._compiled.clear()
        raw = self._lookup(key)
        rules = self._compiled[key] = None if raw is None else _compiled(key, raw)
        return rules


def _compiled(key: tuple[str, str], raw: bytes) -> Rules:
    """Compile rules. Rules that this node can't read, because a newer release wrote them, deny everything."""
    try:
        return Rules(decoded(raw))
    except (ValueError, msgspec.DecodeError) as error:
        log.error("the rules of %s %r can't be read, and permit nothing: %s", *key, error)
        return DENY_ALL


def encoded(rules: tuple[RuleSettings, ...]) -> bytes:
    """Encode rules for the log."""
    return msgspec.json.encode(rules)


def decoded(raw: bytes) -> tuple[RuleSettings, ...]:
    return msgspec.json.decode(raw, type=tuple[RuleSettings, ...])


class HttpRules:
    """An HTTP service that decides about each action. The authorizer caches its decisions."""

    def __init__(self, settings: HttpSourceSettings, where: str, clock: Clock) -> None:
        self._service = HttpService(settings, ACTION_VALUES, where, clock)

    async def start(self) -> None:
        await self._service.start()

    async def stop(self) -> None:
        await self._service.stop()

    async def ask(self, subject: Subject, action: int, topic: bytes, qos: int, retain: bool) -> bool | None:
        """Raises Unanswered, Overloaded."""
        values = {
            "action": "publish" if action == PUBLISH else "subscribe",
            "topic": topic.decode(),
            "qos": str(qos),
            "retain": "true" if retain else "false",
        }
        user = subject.username or subject.clientid
        answer = await self._service.ask(lambda name: values[name] if name in values else subject.value(name), user)
        match answer.result:
            case "allow":
                return True
            case "deny":
                return False
            case "ignore":
                return None
        log.warning("an answer's result is none of allow, deny, ignore")
        raise Unanswered


def file_rules(settings: FileSourceSettings, where: str) -> Rules:
    """Raises ConfigError."""
    rules, source = settings.rules, f"{where}.rules"
    if settings.path is not None:
        rules, source = read_rules(settings.path, f"{where}.path"), str(settings.path)
    try:
        return compile_rules(rules)
    except ValueError as error:
        raise ConfigError(f"{source}: {error}") from None


def read_rules(file: Path, where: str) -> tuple[RuleSettings, ...]:
    """Read `rules` from a JSON file if its name ends in .json, else from a TOML file. Raises ConfigError."""
    try:
        with file.open("rb") as opened:
            text = opened.read(CONFIG_MAX_BYTES + 1)
    except OSError as error:
        raise ConfigError(f"{where}: {str(file)!r} can't be read: {error.strerror}") from None
    if len(text) > CONFIG_MAX_BYTES:
        raise ConfigError(f"{where}: {str(file)!r} is larger than {CONFIG_MAX_BYTES} bytes")
    try:
        document = strict_json.decode(text) if file.suffix == ".json" else tomllib.loads(text.decode())
        return msgspec.convert(document, _RulesFile).rules
    except (msgspec.DecodeError, UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError) as error:
        raise ConfigError(
            f"{file}: {error}; it must have rules, each with a permit, and without lists that are empty"
        ) from None


class _RulesFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    rules: tuple[RuleSettings, ...]
