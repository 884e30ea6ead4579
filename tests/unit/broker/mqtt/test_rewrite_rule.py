"""What is no rule of topic rewrite, and templates."""

from __future__ import annotations

import pytest

from flockmq.mqtt.rewrite_rule import RewriteRule, TopicTemplate


@pytest.mark.parametrize(
    ("rule", "complaint"),
    [
        (("a/#/b", ".*", "c"), "source_topic 'a/#/b'"),
        (("a", "(", "c"), r"re '\('"),
        (("a", "(?=x)", "c"), "not an expression of RE2"),
        (("a", "(.*)", "$2"), r"dest_topic '\$2': \$2: the regular expression has 1 groups"),
        (("a", "(.*)", "${client}"), r"\$\{client\}: there is \$\{clientid\}, \$\{username\}"),
    ],
)
def test_what_is_no_rule_is_refused_by_its_key(rule: tuple[str, str, str], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        RewriteRule(*rule)


def test_a_template_without_variables_is_itself() -> None:
    assert TopicTemplate("a/b", ()).fill({}) == b"a/b"
    assert TopicTemplate("a$b$", ()).fill({}) == b"a$b$"
