"""Placeholders and what stands in their place."""

import pytest

from flockmq.auth.template import Template

VALUES = {"clientid": "c/1", "username": None}


def test_placeholders_are_filled_quoted_and_empty_for_what_there_isnt() -> None:
    template = Template("a${clientid}b${username}$c$", ("clientid", "username"))
    assert template.render(VALUES.get) == "ac/1b$c$"
    assert template.render(VALUES.get, lambda text: text.replace("/", "%2F")) == "ac%2F1b$c$"
    assert Template("plain", ()).render(VALUES.get) == "plain"


def test_what_a_client_says_is_never_a_placeholder() -> None:
    assert Template("${a}${b}", ("a", "b")).render({"a": "${b}", "b": "x"}.get) == "${b}x"


def test_an_unknown_placeholder_is_refused_with_those_that_there_are() -> None:
    with pytest.raises(ValueError, match=r"\$\{user\} is unknown; known: \$\{clientid\}"):
        Template("k:${user}", ("clientid",))
