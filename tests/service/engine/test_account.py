"""The account of work: bytes are taken before they are used, and given back whatever happens."""

from threading import Thread
from typing import Any

import pytest

from service.engine.account import ByteBudget, Reservation
from service.errors import Cancelled, Overloaded, TooLarge

MB = 1_000_000


def test_what_a_thread_still_writes_for_a_caller_who_left_takes_nothing() -> None:
    budget = ByteBudget(10, 10)
    reservation = Reservation(budget)
    reservation.expect(5)
    reservation.write(4)  # within what was expected
    assert budget.held == 5
    reservation.write(3)
    assert budget.held == 7
    with pytest.raises(Overloaded):
        Reservation(budget).expect(5)
    with pytest.raises(TooLarge):
        reservation.expect(11)
    reservation.arrive(2, whole=True)
    with pytest.raises(TooLarge):
        reservation.expect(9)  # the body is here too
    reservation.end()
    with pytest.raises(Cancelled):
        reservation.write(1)
    assert budget.held == 0


def test_small_requests_have_room_when_large_ones_have_taken_theirs() -> None:
    budget = ByteBudget(64 * MB, 256 * MB)
    for _ in range(4):
        Reservation(budget).expect(64 * MB)
    with pytest.raises(Overloaded):
        Reservation(budget).expect(2 * MB)
    small = [Reservation(budget) for _ in range(32)]
    for each in small:
        each.expect(MB)
    with pytest.raises(Overloaded):
        Reservation(budget).expect(1)
    small[0].end()
    Reservation(budget).expect(1)


def test_who_reads_or_sends_slowest_is_cut_off_when_room_is_needed(clock: list[float]) -> None:
    budget = ByteBudget(10 * MB, 10 * MB)
    cut: list[str] = []

    def caller(name: str) -> Reservation:
        return Reservation(budget, lambda: cut.append(name))

    working, unread, sending, reading = (caller(name) for name in ("working", "unread", "sending", "reading"))
    working.expect(2 * MB)
    for each in (unread, reading):
        each.expect(3 * MB)
        each.deliver(3 * MB)
    sending.arrive(2 * MB, whole=False)
    newcomer: Any = caller("newcomer")
    with pytest.raises(Overloaded):
        newcomer.expect(3 * MB)  # nobody is slow yet
    clock[0] = 3.0
    reading.sent(MB)
    newcomer.expect(3 * MB)
    assert cut == ["unread"]
    assert (unread.size, budget.held) == (0, 9 * MB)
    caller("another").expect(3 * MB)
    assert cut == ["unread", "reading"]  # a third of a megabyte a second; `sending` does two thirds
    with pytest.raises(Cancelled):
        unread.write(4 * MB)
    assert working.size == 2 * MB


def test_body_that_is_whole_and_answer_that_is_sent_wait_for_nobody(clock: list[float]) -> None:
    budget = ByteBudget(MB, MB)
    cut: list[bool] = []
    working = Reservation(budget, lambda: cut.append(True))
    working.arrive(MB // 2, whole=False)
    working.arrive(MB // 2, whole=True)
    clock[0] = 100.0
    with pytest.raises(Overloaded):
        Reservation(budget).expect(MB)
    working.deliver(MB)
    working.sent(MB)
    assert (budget.held, cut) == (0, [])


def test_caller_that_is_cut_off_while_its_bytes_move_holds_up_nobody(clock: list[float]) -> None:
    budget = ByteBudget(MB, MB)
    sending: list[Thread] = []

    def cut() -> None:
        sending.append(Thread(target=slow.sent, args=(1,), daemon=True))
        sending[0].start()
        sending[0].join(0.1)

    slow = Reservation(budget, cut)
    slow.expect(MB)
    slow.deliver(MB)
    clock[0] = 3.0
    newcomer = Thread(target=Reservation(budget).expect, args=(MB,), daemon=True)
    newcomer.start()
    for thread in (newcomer, *sending):
        thread.join(5)
        assert not thread.is_alive()
    assert budget.held == MB


def test_slow_caller_who_asks_for_more_is_refused_and_not_cut_off(clock: list[float]) -> None:
    budget = ByteBudget(MB, MB)
    cut: list[bool] = []
    slow = Reservation(budget, lambda: cut.append(True))
    slow.arrive(MB // 2, whole=False)
    Reservation(budget).expect(MB // 2)
    clock[0] = 3.0
    with pytest.raises(Overloaded):
        slow.arrive(MB // 2, whole=False)
    assert (slow.size, budget.held, cut) == (MB // 2, MB, [])
    slow.end()
    assert budget.held == MB // 2


def test_request_that_is_over_waits_for_nobody(clock: list[float]) -> None:
    budget = ByteBudget(MB, MB)
    cut: list[bool] = []
    over = Reservation(budget, lambda: cut.append(True))
    over.end()
    over.arrive(0, whole=False)
    over.deliver(MB)
    clock[0] = 3.0
    Reservation(budget).expect(MB)
    with pytest.raises(Overloaded):
        Reservation(budget).expect(MB)
    assert (budget.held, cut) == (MB, [])


def test_answer_that_is_whole_is_not_refused() -> None:
    budget = ByteBudget(MB, MB)
    Reservation(budget).expect(MB)
    Reservation(budget).expect(MB // 8)  # all that is kept for small ones
    answered = Reservation(budget)
    answered.deliver(200)
    assert budget.held == MB + MB // 8 + 200
    answered.sent(200)
    assert budget.held == MB + MB // 8
