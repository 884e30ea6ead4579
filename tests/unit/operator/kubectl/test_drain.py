"""`kubectl flockmq drain`: with the broker's own `flockmq ctl evacuate`."""

import pytest

from flockmq_operator.kubectl import drain
from flockmq_operator.kubectl.failed import Failed
from flockmq_operator.kubectl.main import seconds
from flockmq_operator.manifest import Ref
from unit.operator.kubectl.harness import Town

REPLICANT = "demo-replicant-a"


@pytest.fixture(autouse=True)
def fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drain, "LOOK_S", 0.0)


async def test_a_node_sends_its_clients_away_until_it_is_told_otherwise(
    town: Town, capsys: pytest.CaptureFixture[str]
) -> None:
    await town.run("drain", REPLICANT)
    assert town.node.is_evacuated
    assert [pod for pod, _ in town.commands] == [REPLICANT]
    undo = "kubectl flockmq drain demo-replicant-a --namespace fleet --undo"
    assert capsys.readouterr().out == (
        f"{REPLICANT} takes no clients, and sends its 20 to other nodes, until: {undo}\n"
    )
    await town.run("drain", REPLICANT, "--undo")
    assert not town.node.is_evacuated
    assert capsys.readouterr().out.startswith(f"{REPLICANT} takes clients again")


async def test_it_can_be_waited_for(town: Town, capsys: pytest.CaptureFixture[str]) -> None:
    town.node.takes_away = 15
    await town.run("drain", REPLICANT, "--wait")
    assert capsys.readouterr().out.splitlines()[1:] == [
        f"{REPLICANT}: 5 clients are left; 500 leave a second",
        f"{REPLICANT}: empty",
    ]


async def test_where_no_other_node_takes_clients_it_says_so_and_the_wait_ends(
    town: Town, capsys: pytest.CaptureFixture[str]
) -> None:
    town.node.rate = 0.0
    with pytest.raises(Failed, match=r"clients are left after 0 s; it goes on. demo-replicant-a: 20 clients are left"):
        await town.run("drain", REPLICANT, "--wait", "--timeout", "0s")
    assert "20 clients are left; they stay while no other node takes clients" in capsys.readouterr().out
    assert town.node.is_evacuated


async def test_an_evacuation_that_somebody_ended_is_waited_for_no_more(
    town: Town, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(town.node, "start", lambda: None)
    with pytest.raises(Failed, match=f"{REPLICANT}: its evacuation has ended"):
        await town.run("drain", REPLICANT, "--wait")


async def test_a_node_that_does_not_answer_is_looked_at_again_a_bounded_number_of_times(
    town: Town, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(drain, "UNANSWERED_MAX", 2)
    started = town.node.start

    def start_and_fall_silent() -> None:
        started()
        town.silent.add(REPLICANT)

    monkeypatch.setattr(town.node, "start", start_and_fall_silent)
    with pytest.raises(Failed, match=f"pod {REPLICANT} in namespace fleet: no command can be run in it"):
        await town.run("drain", REPLICANT, "--wait")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("demo-replicant-z", "there is no pod demo-replicant-z in namespace fleet"),
        ("demo-redis-0", "pod demo-redis-0 in namespace fleet is no node of a MqttCluster: name a core or a replicant"),
    ],
)
async def test_what_is_no_node_is_refused(town: Town, name: str, said: str) -> None:
    with pytest.raises(Failed, match=said):
        await town.run("drain", name)
    assert not town.commands


async def test_a_pod_of_somebody_else_is_left_alone(town: Town) -> None:
    town.world.objects[Ref("Pod", REPLICANT)]["metadata"]["labels"] = {"app": "mine"}
    with pytest.raises(Failed, match="is no node"):
        await town.run("drain", REPLICANT, "--undo")


@pytest.mark.parametrize(("text", "value"), [("90", 90.0), ("90s", 90.0), ("10m", 600.0), ("1.5h", 5400.0)])
def test_a_time_has_a_unit(text: str, value: float) -> None:
    assert seconds(text) == value
