"""Who comes and goes too often is found out, at a bounded cost."""

from flockmq.auth.flapping import FlappingDetector
from flockmq.config.auth_settings import FlappingSettings

C = ("jo", "c", "192.0.2.1")
SETTINGS = FlappingSettings(enable=True, max_count=3, window_time=60.0)


def test_so_many_ends_within_the_window_are_too_many() -> None:
    detector = FlappingDetector(SETTINGS)
    assert [detector.disconnected(C, at_s) for at_s in (0.0, 30.0, 59.0)] == [False, False, True]
    assert [detector.disconnected(C, at_s) for at_s in (60.0, 61.0)] == [False, False], "it counts anew"


def test_the_window_slides() -> None:
    detector = FlappingDetector(SETTINGS)
    assert [detector.disconnected(C, at_s) for at_s in (0.0, 40.0, 61.0, 99.0)] == [False, False, False, True]


def test_clients_are_counted_on_their_own() -> None:
    detector = FlappingDetector(SETTINGS)
    others = [("ann", "c", "192.0.2.1"), ("jo", "d", "192.0.2.1"), ("jo", "c", "192.0.2.2"), ("", "c", "192.0.2.1")]
    assert not any(detector.disconnected(client, 1.0) for client in (C, *others) * 2)
    assert detector.disconnected(C, 2.0)


def test_the_quiet_are_forgotten_and_there_are_never_more_than_room() -> None:
    detector = FlappingDetector(SETTINGS, room=10)
    for number in range(100):
        detector.disconnected(("jo", str(number), ""), 0.0)
    assert len(detector) == 10
    detector.disconnected(C, 61.0)
    assert len(detector) == 1


def test_other_settings_count_anew() -> None:
    detector = FlappingDetector(SETTINGS)
    detector.disconnected(C, 0.0)
    detector.configure(FlappingSettings(enable=True, max_count=2, window_time=10.0))
    assert [detector.disconnected(C, at_s) for at_s in (1.0, 2.0)] == [False, True]
