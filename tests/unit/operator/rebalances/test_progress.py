"""How far a rebalance is, by what nodes tell."""

from flockmq_operator.rebalances.progress import Asked, Row, Shown, plan, progress, runs_instead, said

NAME = "MqttRebalance/move/6b0f2f0e"


def row(node: str, state: str, moved: int = 0, *, name: str = NAME, node_state: str = "idle", left: int = 0) -> Row:
    return Row(node, node_state, 10, 0, left, Asked(name, state, moved))


def test_it_runs_while_any_node_runs_it() -> None:
    shown = Shown((row("a", "gave_up", 30), row("b", "running", 1, left=4), row("c", "balanced")))
    found = progress(NAME, shown, ())
    assert found is not None
    assert (found.phase, found.message) == ("Running", "31 clients were moved, 4 are to go")
    assert found.nodes is not None
    assert [node["name"] for node in found.nodes] == ["a", "b", "c"]


def test_a_node_that_gave_up_and_has_its_share_nevertheless_has_not_failed() -> None:
    for planned, reason in ((0, "Balanced"), (7, "GaveUp"), (None, "GaveUp")):
        asked = Asked(NAME, "gave_up", 30)
        found = progress(NAME, Shown((Row("a", "idle", 10, planned, 0, asked), row("b", "balanced"))), ())
        assert found is not None
        assert found.reason == reason


def test_a_node_that_ends_has_not_stopped_it() -> None:
    shown = Shown((row("a", "stopped", 3, node_state="draining"), row("b", "balanced", 1)))
    found = progress(NAME, shown, ())
    assert found is not None
    assert (found.phase, found.reason) == ("Succeeded", "Balanced")


def test_what_nodes_tell_of_others_is_none_of_its_business() -> None:
    shown = Shown((row("a", "balanced", name="Jo"), row("b", "running", name=""), Row("c", "unheard")))
    assert progress(NAME, shown, ()) is None
    assert runs_instead(NAME, shown) == "somebody"
    assert runs_instead("", shown) == ""


def test_a_plan_has_the_nodes_that_told_theirs() -> None:
    found = plan(Shown((Row("a", "idle", 20, 7), Row("b", "draining", 5), Row("c", "idle", 1, 0))))
    assert found.nodes == [
        {"name": "a", "clients": 20, "moved": 0, "left": 7},
        {"name": "c", "clients": 1, "moved": 0, "left": 0},
    ]


def test_a_sentence_names_a_few_nodes() -> None:
    assert said(["a", "b"]) == "a, b"
    assert said([str(number) for number in range(8)]) == "0, 1, 2, 3, 4 and 3 more"
