from __future__ import annotations

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, multiple, rule

from flockmq.session_rpc.client_registry import COUNT_BITS, SLOT_BITS, TOKEN_BYTES, ClientRegistry, Kick, slot_of

ID = b"client"
A, B = "a@00000001", "b@00000001"
IDS = st.sampled_from((b"x", b"y"))


def registry_of(*client_ids: bytes) -> ClientRegistry:
    registry = ClientRegistry()
    for client_id in client_ids:
        registry.own(slot_of(client_id))
    return registry


def test_a_free_client_id_is_had_at_once() -> None:
    registry = registry_of(ID)
    attached = registry.attach(ID, A, 3)
    assert attached.admitted
    assert attached.token >> COUNT_BITS + SLOT_BITS == 3
    registry.detach(ID, attached.token)
    assert len(registry) == 0


def test_a_newer_connection_waits_until_the_older_is_gone() -> None:
    registry = registry_of(ID)
    old = registry.attach(ID, A, 0)
    new = registry.attach(ID, B, 0)
    assert (new.admitted, new.kick) == (False, Kick(A, ID, old.token))
    assert new.token > old.token
    assert registry.detach(ID, old.token) == (B, new.token, None)


def test_of_two_that_wait_the_newer_gets_it() -> None:
    registry = registry_of(ID)
    old = registry.attach(ID, A, 0)
    loser = registry.attach(ID, B, 0)
    winner = registry.attach(ID, A, 0)
    assert winner.superseded == (B, loser.token, None)
    assert registry.detach(ID, loser.token) is None
    assert registry.detach(ID, old.token) == (A, winner.token, None)


def test_of_too_many_connections_that_were_not_confirmed_as_closed_the_first_is_forgotten() -> None:
    registry = ClientRegistry(unconfirmed_max=1)
    for client_id in (b"other", ID):
        registry.own(slot_of(client_id))
    for client_id in (b"other", ID):
        registry.not_confirmed(client_id, 7)
    assert registry.unconfirmed_ends() == 1
    assert registry.register(ID, A, 7) == Kick(A, ID, 7)
    assert registry.register(b"other", A, 7) is None


def test_what_a_purged_node_held_is_free() -> None:
    registry = registry_of(ID, b"other")
    registry.attach(ID, A, 0)
    registry.attach(b"other", A, 0)
    waiting = registry.attach(ID, B, 0)
    assert registry.node_gone(A) == [(ID, (B, waiting.token, None))]
    assert registry.attach(b"other", B, 0).admitted
    for _ in registry.sweep():
        pass
    assert len(registry) == 2


def test_sweeping_frees_what_purged_nodes_held() -> None:
    registry = registry_of(ID)
    registry.attach(ID, A, 0)
    registry.node_gone(A)
    for _ in registry.sweep():
        pass
    assert len(registry) == 0


def test_a_later_owner_gives_higher_tokens_and_the_higher_stays() -> None:
    earlier, later = registry_of(ID), registry_of(ID)
    for _ in range(1000):
        old = earlier.attach(ID, A, 5)
        earlier.detach(ID, old.token)
    new = later.attach(ID, B, 6)
    assert new.token > old.token
    assert later.register(ID, A, old.token) == Kick(A, ID, old.token)
    assert later.register(ID, B, new.token) is None


def test_a_token_names_one_connection_of_the_cluster() -> None:
    """Two cores that began together give the first of their clients tokens that differ."""
    here, there = registry_of(ID), registry_of(b"other")
    largest = (1 << 64) - 1
    assert here.attach(ID, A, largest).token != there.attach(b"other", A, largest).token
    assert here.attach(ID, A, largest).token.bit_length() <= 8 * TOKEN_BYTES


def test_of_two_that_register_the_higher_stays() -> None:
    registry = registry_of(ID)
    assert registry.register(ID, A, 1) is None
    assert registry.register(ID, B, 2) == Kick(A, ID, 1)
    assert registry.register(ID, A, 1) == Kick(A, ID, 1)


def test_a_slot_that_comes_back_starts_anew() -> None:
    registry = registry_of(ID)
    first = registry.attach(ID, A, 5)
    registry.attach(ID, B, 5)
    assert [client_id for client_id, _ in registry.disown(slot_of(ID))] == [ID]
    assert not registry.owns(slot_of(ID))
    registry.own(slot_of(ID))
    again = registry.attach(ID, A, 9)
    assert again.admitted
    assert again.token > first.token


def test_another_user_does_not_get_what_a_user_holds() -> None:
    registry = registry_of(ID)
    held = registry.attach(ID, A, 0, b"jo")
    assert registry.attach(ID, B, 0, b"eve") is None
    assert registry.attach(ID, B, 0, b"") is None, "nor does nobody"
    assert registry.attach(ID, B, 0, None).kick == Kick(A, ID, held.token), "where it comes from nothing is bound"


def test_of_two_users_connections_the_older_stays() -> None:
    registry = registry_of(ID)
    registry.register(ID, A, 2, b"eve")
    assert registry.has_newer(ID, 1, b"jo") is False
    assert registry.register(ID, B, 1, b"jo") == Kick(A, ID, 2)
    assert registry.register(ID, A, 2, b"eve") == Kick(A, ID, 2)
    assert registry.holds(ID, B, 1)


class Takeovers(RuleBasedStateMachine):
    """Connections as their nodes see them: admitted ones, and kicks that have not been carried out."""

    kicks = Bundle("kicks")

    def __init__(self) -> None:
        super().__init__()
        self.ids = (b"x", b"y")
        self.registry = registry_of(*self.ids)
        self.live: dict[int, bytes] = {}
        self.waiting: dict[int, bytes] = {}
        self.newest: dict[bytes, int] = {}
        self.users: dict[int, bytes | None] = {}

    @rule(target=kicks, client_id=IDS, node=st.sampled_from((A, B)), user=st.sampled_from((None, b"", b"jo")))
    def connect(self, client_id: bytes, node: str, user: bytes | None) -> object:
        token = next((token for token, of in self.live.items() if of == client_id), 0)
        holder = self.users.get(token)
        attached = self.registry.attach(client_id, node, 1, user)
        assert (attached is None) == (None not in (holder, user) and holder != user)
        if attached is None:
            return multiple()
        self.users[attached.token] = user
        assert attached.token > self.newest.get(client_id, 0)
        self.newest[client_id] = attached.token
        if attached.superseded is not None:
            del self.waiting[attached.superseded[1]]
        if attached.admitted:
            self.live[attached.token] = client_id
            return multiple()
        self.waiting[attached.token] = client_id
        assert attached.kick is not None
        return attached.kick

    @rule(kick=consumes(kicks))
    def carry_out(self, kick: Kick) -> None:
        self.live.pop(kick.token, None)
        self.gone(kick.client_id, kick.token)

    @rule(data=st.data())
    def disconnect(self, data: st.DataObject) -> None:
        if self.live:
            token = data.draw(st.sampled_from(sorted(self.live)))
            self.gone(self.live.pop(token), token)

    @rule(data=st.data())
    def give_up_waiting(self, data: st.DataObject) -> None:
        if self.waiting:
            token = data.draw(st.sampled_from(sorted(self.waiting)))
            self.gone(self.waiting.pop(token), token)

    def gone(self, client_id: bytes, token: int) -> None:
        admitted = self.registry.detach(client_id, token)
        if admitted is not None:
            self.live[admitted[1]] = self.waiting.pop(admitted[1])

    @invariant()
    def one_connection_holds_a_client_id(self) -> None:
        assert len(set(self.live.values())) == len(self.live)
        assert len(self.registry) == len(self.live)

    @invariant()
    def who_waits_waits_for_somebody(self) -> None:
        assert set(self.waiting.values()) <= set(self.live.values())


TestTakeovers = Takeovers.TestCase
TestTakeovers.settings = settings(max_examples=100, stateful_step_count=40)
