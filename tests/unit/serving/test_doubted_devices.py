"""How long devices wait that started again and then failed."""

from __future__ import annotations

from tilewright.serving.doubted_devices import DoubtedDevices


def test_each_failure_in_a_row_doubles_the_wait() -> None:
    now_s = [0.0]
    doubted, waits_s = DoubtedDevices(lambda: now_s[0]), list[float]()
    for _ in range(8):
        doubted.note(["left"], 10.0)
        began_s = now_s[0]
        while doubted.without([]):
            assert doubted.names == {"left"} and not doubted.over
            now_s[0] += 10.0
        waits_s.append(now_s[0] - began_s)
    assert waits_s == [10, 20, 40, 80, 160, 320, 600, 600]
    doubted.forget(["left"])
    doubted.note(["left"], 10.0)
    now_s[0] += 9.0
    assert doubted.names == {"left"} and not doubted.over
    now_s[0] += 1.0
    assert not doubted.names and doubted.over


def test_one_that_is_lost_again_waits_no_longer_and_is_remembered() -> None:
    now_s = [0.0]
    doubted = DoubtedDevices(lambda: now_s[0])
    doubted.note(["left", "right"], 10.0)
    assert doubted.without({"left"}) == {"right"} and not doubted.over
    doubted.note(["left"], 10.0)
    now_s[0] = 10.0
    assert doubted.over and doubted.without([]) == {"left"}
    doubted.end()
    assert not doubted.names and not doubted.over


def test_a_first_wait_above_the_longest_stays() -> None:
    now_s = [0.0]
    doubted = DoubtedDevices(lambda: now_s[0])
    for _ in range(2):
        doubted.note(["left"], 1000.0)
    now_s[0] = 999.0
    assert doubted.names == {"left"}
    now_s[0] = 1000.0
    assert not doubted.names
