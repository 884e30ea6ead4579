"""Pages of a table's keys."""

from flockmq.rlog.sorted_keys import SortedKeys


def test_keys_come_in_order_page_by_page() -> None:
    keys: SortedKeys[str] = SortedKeys()
    for key in ("c", "a", "d", "b"):
        keys.put(key, object(), None)
    keys.put("a", object(), object())
    keys.delete("d", object())
    assert len(keys) == 3
    assert keys.page(None, 2) == ["a", "b"]
    assert keys.page("b", 2) == ["c"]
    assert keys.page("c", 2) == []
    assert keys.page("aa", 1) == ["b"], "the key that the page before ended with may be gone"
    fresh = keys.fresh()
    fresh.put("z", object(), None)
    keys.swap(fresh)
    assert keys.page(None, 9) == ["z"]
