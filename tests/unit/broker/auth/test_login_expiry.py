"""Clients are due at their time, once, and those that left never."""

from flockmq.auth.login_expiry import SLACK, LoginExpiry


class Client:
    pass


def test_clients_are_due_in_their_time() -> None:
    expiring: LoginExpiry[Client] = LoginExpiry()
    one, other = Client(), Client()
    expiring.add(b"1", 10.0, one)
    expiring.add(b"2", 5.0, other)
    assert expiring.due(4.9) == []
    assert expiring.due(5.0) == [other]
    assert expiring.due(20.0) == [one]
    assert expiring.due(30.0) == []
    assert len(expiring) == 0


def test_who_left_or_got_more_time_is_not_due() -> None:
    expiring: LoginExpiry[Client] = LoginExpiry()
    gone, longer, older = Client(), Client(), Client()
    expiring.add(b"gone", 10.0, gone)
    expiring.remove(b"gone", gone)
    expiring.add(b"longer", 10.0, older)
    expiring.add(b"longer", 20.0, longer)
    expiring.remove(b"longer", older)
    assert expiring.due(15.0) == []
    assert expiring.due(25.0) == [longer]


def test_clients_that_come_and_go_leave_nothing_behind() -> None:
    expiring: LoginExpiry[Client] = LoginExpiry()
    for number in range(3 * SLACK):
        client = Client()
        expiring.add(str(number).encode(), 1e12, client)
        expiring.remove(str(number).encode(), client)
    assert len(expiring._heap) <= SLACK + 1
