"""Threads that are kept from group to group: none is left under way, none waits for itself."""

from __future__ import annotations

import gc
import threading
import time

import pytest

from catalog_migrate.engine.workers import Workers


def test_results_come_in_order_and_from_the_same_threads() -> None:
    workers = Workers(3)
    mine: set[threading.Thread] = set()
    all_are_there = threading.Barrier(3, timeout=300)

    def act(number: int) -> int:
        if number < 3:
            all_are_there.wait()
        mine.add(threading.current_thread())
        return number * 2

    for _ in range(5):
        all_are_there.reset()
        assert list(workers.each(range(9), act)) == [(n, n * 2) for n in range(9)]
    assert len(mine) == 3
    workers.close()
    assert not mine.intersection(threading.enumerate())
    assert list(workers.each(range(2), lambda number: number)) == [(0, 0), (1, 1)]
    workers.close()


@pytest.mark.parametrize("threads", [1, 4])
@pytest.mark.parametrize("count", [0, 1])
def test_one_act_needs_no_thread(threads: int, count: int) -> None:
    workers = Workers(threads)
    found = list(workers.each(range(count), lambda _: threading.current_thread()))
    assert [thread for _, thread in found] == [threading.current_thread()] * count
    assert list(Workers(1).each([1, 2], lambda _: threading.current_thread())) == [
        (1, threading.current_thread()), (2, threading.current_thread()),
    ]


def test_after_a_crash_nothing_is_under_way_and_nothing_begins() -> None:
    """Ctrl-C in an act: what runs beside it is waited for, what has not begun never does."""
    workers = Workers(2)
    begun: list[int] = []
    ended: list[int] = []
    beside = threading.Event()

    def act(number: int) -> None:
        begun.append(number)
        if number == 0:
            assert beside.wait(10)
            raise KeyboardInterrupt
        beside.set()
        time.sleep(0.2)
        ended.append(number)

    with pytest.raises(KeyboardInterrupt):
        list(workers.each(range(50), act))
    at_the_end = list(begun)
    assert sorted(ended) == sorted(set(begun) - {0})
    time.sleep(0.3)
    assert begun == at_the_end
    assert len(begun) < 10
    assert [n for n, _ in workers.each([1, 2], str)] == [1, 2], "the threads are still there"
    workers.close()


def test_a_caller_that_wants_no_more_leaves_nothing_under_way() -> None:
    workers = Workers(2)
    ended: list[int] = []

    def act(number: int) -> None:
        time.sleep(0.05 * number)
        ended.append(number)

    some = workers.each(range(1, 20), act)
    assert next(some)[0] == 1
    some.close()
    seen = list(ended)
    time.sleep(0.3)
    assert ended == seen
    assert len(seen) < 6
    workers.close()


def test_close_lets_nothing_begin_of_an_iteration_that_was_left() -> None:
    """Ctrl-C in what the caller does with a result: the exception keeps the iteration alive."""
    workers = Workers(2)
    begun: list[int] = []
    ended: list[int] = []

    def act(number: int) -> None:
        begun.append(number)
        time.sleep(0.05)
        ended.append(number)

    left = workers.each(range(40), act)
    assert next(left)[0] == 0
    workers.close()
    seen = list(begun)
    assert sorted(ended) == sorted(seen), "close waits for what is under way"
    time.sleep(0.2)
    assert begun == seen
    assert len(seen) < 10
    left.close()


def test_an_act_that_asks_for_workers_itself_has_an_end() -> None:
    workers = Workers(2)

    def act(number: int) -> list[int]:
        return [n for n, _ in workers.each(range(number), lambda _: time.sleep(0.01))]

    found = dict(workers.each([3, 4, 5], act))
    assert found == {3: [0, 1, 2], 4: [0, 1, 2, 3], 5: [0, 1, 2, 3, 4]}
    workers.close()


def test_threads_end_with_the_last_reference() -> None:
    before = set(threading.enumerate())
    workers = Workers(2)
    list(workers.each(range(4), lambda _: time.sleep(0.01)))
    mine = set(threading.enumerate()) - before
    assert len(mine) == 2
    del workers
    gc.collect()
    for thread in mine:
        thread.join(10)
        assert not thread.is_alive()
