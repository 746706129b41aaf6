"""The device's lock, between threads and between real processes."""

import contextlib
import fcntl
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernelwright.stages.measure.lock import DeviceLock, runtime_folder

WAIT_S = 30.0
spawn = multiprocessing.get_context("spawn")


def lock_in(folder: Path, **more: object) -> DeviceLock:
    return DeviceLock("cpu", folder=folder, **more)  # type: ignore[arg-type]


def hold_in_process(folder: Path, kind: str, said: Connection) -> None:
    with getattr(lock_in(folder), kind)():
        said.send("have it")
        said.recv()


def started(folder: Path, kind: str) -> tuple[BaseProcess, Connection]:
    ours, theirs = spawn.Pipe()
    process = spawn.Process(target=hold_in_process, args=(folder, kind, theirs))
    process.start()
    return process, ours


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def someone_waits(folder: Path) -> bool:
    """Whether the turnstile is taken: it is while somebody waits for the lock itself."""
    with lock_in(folder).turnstile.open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        return False


def waits(action: Callable[[], object]) -> tuple[threading.Thread, threading.Event]:
    """Run `action` in a thread; the event is set when it is through."""
    done = threading.Event()

    def run() -> None:
        action()
        done.set()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread, done


def enter(manager: contextlib.AbstractContextManager[None]) -> Callable[[], None]:
    def action() -> None:
        with manager:
            pass

    return action


def test_processes_share_the_device_and_exclude_each_other_while_one_has_it_alone(tmp_path: Path) -> None:
    reader, reader_said = started(tmp_path, "shared")
    assert reader_said.recv() == "have it"
    with lock_in(tmp_path).shared():
        writer, writer_said = started(tmp_path, "exclusive")
        until(lambda: someone_waits(tmp_path))
        assert not writer_said.poll(0.3)
    reader_said.send("done")
    assert writer_said.poll(WAIT_S)
    _, entered = waits(enter(lock_in(tmp_path).shared()))
    assert not entered.wait(0.3)
    writer_said.send("done")
    assert entered.wait(WAIT_S)
    for process in (reader, writer):
        process.join(WAIT_S)
        assert process.exitcode == 0


def test_a_killed_process_gives_the_device_up(tmp_path: Path) -> None:
    process, said = started(tmp_path, "exclusive")
    assert said.recv() == "have it"
    _, entered = waits(enter(lock_in(tmp_path).exclusive()))
    assert not entered.wait(0.3)
    assert process.pid is not None
    os.kill(process.pid, signal.SIGKILL)
    assert entered.wait(WAIT_S)


def test_a_process_killed_while_it_waits_blocks_nobody(tmp_path: Path) -> None:
    with lock_in(tmp_path).shared():
        process, said = started(tmp_path, "exclusive")
        until(lambda: someone_waits(tmp_path))
        assert not said.poll()
        _, entered = waits(enter(lock_in(tmp_path).shared()))
        assert not entered.wait(0.3)  # the waiting writer goes first
        assert process.pid is not None
        os.kill(process.pid, signal.SIGKILL)
        assert entered.wait(WAIT_S)


def test_a_long_wait_says_who_holds_the_device(tmp_path: Path) -> None:
    process, said = started(tmp_path, "exclusive")
    assert said.recv() == "have it"
    heard: list[str] = []
    _, entered = waits(enter(lock_in(tmp_path, on_wait=heard.append, notice_s=0.05).shared()))
    until(lambda: bool(heard))
    assert f"process {process.pid}" in heard[0]
    said.send("done")
    assert entered.wait(WAIT_S)
    assert len(heard) == 1


def test_a_short_wait_says_nothing(tmp_path: Path) -> None:
    heard: list[str] = []
    for _ in range(20):
        with lock_in(tmp_path, on_wait=heard.append, notice_s=20.0).exclusive():
            pass
    assert not heard


def order_of(lock: DeviceLock, wanted: list[tuple[str, str]]) -> list[str]:
    """In which order threads that ask in this order, while somebody shares the device, get it."""
    order: list[str] = []
    threads: list[threading.Thread] = []

    def take(kind: str, name: str) -> None:
        with getattr(lock, kind)():
            order.append(name)
            time.sleep(0.01)

    from kernelwright.stages.measure.lock import _queue_of

    queue = _queue_of(lock.turnstile)
    with lock.shared():
        for place, (kind, name) in enumerate(wanted, 1):
            threads.append(threading.Thread(target=take, args=(kind, name)))
            threads[-1].start()
            until(lambda place=place: len(queue._waiting) + (queue._inside is not None) == place)
        assert order == []
    for thread in threads:
        thread.join(WAIT_S)
    return order


def test_a_waiting_writer_lets_no_later_reader_past_and_writers_go_one_after_another(tmp_path: Path) -> None:
    wanted = [("exclusive", "writer 1"), ("shared", "reader 1"), ("exclusive", "writer 2"), ("shared", "reader 2")]
    assert order_of(lock_in(tmp_path), wanted)[:2] == ["writer 1", "writer 2"]


def test_nobody_is_passed_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kernelwright.stages.measure.lock.MOST_PASSED", 2)
    wanted = [("exclusive", "w1"), ("shared", "reader"), *[("exclusive", f"w{i}") for i in range(2, 7)]]
    assert order_of(lock_in(tmp_path), wanted) == ["w1", "w2", "w3", "reader", "w4", "w5", "w6"]


@settings(max_examples=25)
@given(st.lists(st.lists(st.sampled_from(["shared", "exclusive"]), min_size=1, max_size=4), min_size=2, max_size=6))
def test_never_a_reader_beside_a_writer(plans: list[list[str]]) -> None:
    import tempfile

    inside = {"shared": 0, "exclusive": 0}
    guard = threading.Lock()
    wrong: list[dict[str, int]] = []
    with tempfile.TemporaryDirectory() as folder:

        def live(plan: list[str]) -> None:
            lock = lock_in(Path(folder))  # locks of one device are one lock
            for kind in plan:
                with getattr(lock, kind)():
                    with guard:
                        inside[kind] += 1
                        if inside["exclusive"] > 1 or (inside["exclusive"] and inside["shared"]):
                            wrong.append(dict(inside))
                    time.sleep(0.0002)
                    with guard:
                        inside[kind] -= 1

        threads = [threading.Thread(target=live, args=(plan,)) for plan in plans]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(WAIT_S)
            assert not thread.is_alive()
    assert not wrong
    assert inside == {"shared": 0, "exclusive": 0}


def test_readers_are_inside_together(tmp_path: Path) -> None:
    lock, together = lock_in(tmp_path), threading.Barrier(3, timeout=WAIT_S)

    def read() -> None:
        with lock.shared():
            together.wait()

    finished = [waits(read)[1] for _ in range(3)]
    assert all(done.wait(WAIT_S) for done in finished)


def test_asking_again_while_holding_is_an_error_and_not_a_deadlock(tmp_path: Path) -> None:
    lock = lock_in(tmp_path)
    with lock.shared(), pytest.raises(RuntimeError, match="holds"), lock.exclusive():
        pass
    with lock.exclusive():
        pass


def test_an_error_inside_gives_the_device_up(tmp_path: Path) -> None:
    lock = lock_in(tmp_path)
    with pytest.raises(ValueError, match="inside"), lock.exclusive():
        raise ValueError("inside")
    _, entered = waits(enter(lock.exclusive()))
    assert entered.wait(WAIT_S)


def test_a_lock_file_that_is_removed_while_one_waits_is_made_anew(tmp_path: Path) -> None:
    lock = lock_in(tmp_path)
    with lock.exclusive():
        _, entered = waits(enter(lock.exclusive()))
        assert not entered.wait(0.2)
        lock.path.unlink()
    assert entered.wait(WAIT_S)
    assert lock.path.exists()


def test_the_runtime_folder_is_private() -> None:
    assert runtime_folder().stat().st_mode & 0o077 == 0
