"""What a session keeps of its subscriptions, whether it has none, one or many."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from flockmq.routing.filter_index import has_wildcard, shape_of
from flockmq.routing.sink import Sink
from flockmq.routing.subscriber import Subscriber, Subscription, SubscriptionSet

FILTERS = (b"a", b"b", b"+/a", b"a/+", b"a/#", b"b/#")


@given(st.lists(st.tuples(st.booleans(), st.sampled_from(FILTERS), st.booleans())), st.booleans())
def test_a_set_has_each_filter_once_and_counts_its_bytes_and_shapes(
    changes: list[tuple[bool, bytes, bool]], counts_shapes_first: bool
) -> None:
    session = Subscriber(Sink([], 4), b"c", 0)
    held, model = SubscriptionSet(), dict[bytes, Subscription]()
    for is_added, filter, looks in changes:
        if looks or counts_shapes_first:
            held.may_have_shape(b"", 1)
        if is_added:
            model[filter] = subscription = Subscription(session, filter, 1)
            held.add(subscription)
        else:
            assert held.remove(filter) is model.pop(filter, None)
        assert {subscription.filter: subscription for subscription in held.all()} == model
        assert [held.find(filter) for filter in FILTERS] == [model.get(filter) for filter in FILTERS]
        assert (len(held), held.filter_bytes) == (len(model), sum(map(len, model)))
    shapes = {shape_of(filter) for filter in model if has_wildcard(filter)}
    for filter in FILTERS:
        if has_wildcard(filter):
            may = held.may_have_shape(shape_of(filter), len(shapes))
            assert may == (shape_of(filter) in shapes or not model)


def test_what_was_asked_for_is_known_where_another_filter_was_made_of_it() -> None:
    held = SubscriptionSet()
    held.note_asked(b"own/a", b"a")
    held.note_asked(b"b", b"b")
    assert [held.asked_for(filter) for filter in (b"own/a", b"b", b"c")] == [b"a", b"b", b"c"]
    held.note_asked(b"own/a", b"own/a")
    assert held.asked_for(b"own/a") == b"own/a"
