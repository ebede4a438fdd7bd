"""Child processes that crash, hang, hog memory, print garbage, and lose their parent."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tilewright.core.child import wait_until_asleep
from tilewright.core.processes import (
    Child,
    ChildCrash,
    ChildOutOfMemory,
    ChildTimeout,
    RemoteError,
)

LONG_S = 60.0

MODULE = """
    import atexit, ctypes, gc, os, subprocess, sys, time
    from pathlib import Path
    from tilewright.core.child import serve

    print("garbage while importing", flush=True)
    AFFINITY_AT_IMPORT = sorted(os.sched_getaffinity(0))
    hoard = []

    def echo(*values):
        return values

    def pid():
        return os.getpid()

    def noisy(value):
        print("garbage on stdout", flush=True)
        os.write(1, b"\\x00\\x01 raw bytes " * 20_000)
        subprocess.run([sys.executable, "-c", "print('from a grandchild')"], check=True)
        return value

    def crash():
        sys.stderr.write("last words\\n")
        sys.stderr.flush()
        os.abort()

    def chatter(count, length):
        for number in range(count):
            sys.stderr.write(f"{number} ".ljust(length - 1, ".") + "\\n")
        sys.stderr.flush()
        os._exit(3)

    def leave(code):
        sys.stderr.write("leaving\\n")
        sys.exit(code)

    def hang():
        time.sleep(600)

    def hang_with_descendant(path):
        grandchild = subprocess.Popen(["sleep", "600"], start_new_session=True)
        with open(path, "w") as file:
            file.write(str(grandchild.pid))
        time.sleep(600)

    def hog(size):
        hoard.append(b"x" * size)
        return len(hoard[-1])

    def hog_in_c():
        sys.stderr.write("terminate called after throwing an instance of 'std::bad_alloc'\\n")
        sys.stderr.flush()
        os.abort()

    def fail(text):
        raise ValueError(text)

    def unpicklable():
        return lambda: None

    def affinity():
        return AFFINITY_AT_IMPORT

    def variable(name):
        return os.environ.get(name)

    def offers(name):
        try:
            __import__(name)
        except ImportError:
            return False
        return True

    def collects():
        return gc.isenabled()

    def tidy_at_the_end(path):
        atexit.register(Path(path).touch)

    def forked_descendant():
        if os.fork() == 0:
            time.sleep(300)
            os._exit(0)
        os.kill(os.getpid(), 9)

    if __name__ == "__main__":
        serve({name: value for name, value in globals().items() if callable(value)})
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "small_child.py").write_text(textwrap.dedent(MODULE))
    monkeypatch.syspath_prepend(str(tmp_path))
    return "small_child"


@pytest.fixture
def child(module: str) -> Iterator[Child]:
    with Child(module) as started:
        yield started


def gone(pid: int, within_s: float = 10.0) -> bool:
    """Whether a process ends (or is a zombie nobody here can reap) in time."""
    deadline_s = time.monotonic() + within_s
    while time.monotonic() < deadline_s:
        try:
            if psutil.Process(pid).status() == psutil.STATUS_ZOMBIE:
                return True
        except psutil.NoSuchProcess:
            return True
        time.sleep(0.02)
    return False


def test_answers_and_stays(child: Child) -> None:
    assert child.pid is None
    assert child.request(("echo", 1, "two", b"3" * 300_000), LONG_S) == (1, "two", b"3" * 300_000)
    first = child.pid
    assert child.request(("pid",), LONG_S) == first == child.pid
    child.stop()
    assert child.pid is None
    child.stop()


def test_output_does_not_corrupt_the_channel(child: Child) -> None:
    assert child.request(("noisy", 7), LONG_S) == 7
    assert child.request(("echo",), LONG_S) == ()


def test_crash_is_told_and_survived(child: Child) -> None:
    with pytest.raises(ChildCrash, match="SIGABRT") as caught:
        child.request(("crash",), LONG_S)
    assert caught.value.exit_code == -signal.SIGABRT
    assert "last words" in caught.value.stderr
    assert child.pid is None
    assert child.request(("echo", 1), LONG_S) == (1,)


@pytest.mark.parametrize(("count", "length", "told"), [(50_000, 20, 40), (300, 1024, 16)])
def test_the_last_words_of_a_long_speech_are_told(
    child: Child, count: int, length: int, told: int
) -> None:
    """The last forty lines, and no more than 16 KiB: whoever reads the error sees how it ended, and
    a child that writes without end takes no memory here."""
    with pytest.raises(ChildCrash) as caught:
        child.request(("chatter", count, length), LONG_S)
    lines = caught.value.stderr.splitlines()
    assert [int(line.split()[0]) for line in lines] == list(range(count - told, count))
    assert {len(line) for line in lines} == {length - 1}


def test_exit_is_a_crash_with_its_code(child: Child) -> None:
    with pytest.raises(ChildCrash) as caught:
        child.request(("leave", 3), LONG_S)
    assert caught.value.exit_code == 3
    assert "leaving" in caught.value.stderr


def test_aborting_what_does_not_run_does_nothing(child: Child) -> None:
    child.abort()
    assert child.request(("echo", 1), LONG_S) == (1,)
    child.stop()
    child.abort()
    assert child.request(("echo", 2), LONG_S) == (2,)


def test_death_between_requests_is_survived(child: Child) -> None:
    pid = child.request(("pid",), LONG_S)
    os.kill(pid, signal.SIGKILL)
    assert gone(pid)
    assert child.request(("pid",), LONG_S) != pid


def test_hang_is_killed_with_its_descendants(child: Child, tmp_path: Path) -> None:
    pid = child.request(("pid",), LONG_S)
    note = tmp_path / "grandchild"
    with pytest.raises(ChildTimeout, match="2 s"):
        child.request(("hang_with_descendant", str(note)), 2.0)
    assert gone(pid)
    assert gone(int(note.read_text()))
    assert child.request(("echo",), LONG_S) == ()


def test_death_is_noticed_though_a_descendant_holds_the_channel(child: Child) -> None:
    with pytest.raises(ChildCrash, match="SIGKILL"):
        child.request(("forked_descendant",), 20.0)


def test_memory_limit(module: str) -> None:
    with Child(module, memory_limit_bytes=400 << 20) as child:
        assert child.request(("hog", 1 << 20), LONG_S) == 1 << 20
        with pytest.raises(ChildOutOfMemory):
            child.request(("hog", 1 << 30), LONG_S)
        assert child.pid is None
        assert child.request(("hog", 1 << 20), LONG_S) == 1 << 20


def test_bad_alloc_of_native_code_is_out_of_memory(child: Child) -> None:
    with pytest.raises(ChildOutOfMemory, match="bad_alloc"):
        child.request(("hog_in_c",), LONG_S)


def test_bad_alloc_that_was_caught_is_out_of_memory_too(child: Child) -> None:
    with pytest.raises(ChildOutOfMemory, match="InternalError"):
        child.request(("fail", "InternalError: std::bad_alloc"), LONG_S)
    assert child.request(("echo",), LONG_S) == ()


def test_exceptions_come_back_and_the_child_lives(child: Child) -> None:
    pid = child.request(("pid",), LONG_S)
    with pytest.raises(RemoteError, match="ValueError: too odd") as caught:
        child.request(("fail", "too odd"), LONG_S)
    assert (caught.value.kind, caught.value.message) == ("ValueError", "too odd")
    assert "in fail" in caught.value.trace
    with pytest.raises(RemoteError, match="KeyError"):
        child.request(("no such handler",), LONG_S)
    with pytest.raises(RemoteError):
        child.request(("unpicklable",), LONG_S)
    assert child.request(("pid",), LONG_S) == pid


def test_unpicklable_request_leaves_the_channel_whole(child: Child) -> None:
    pid = child.request(("pid",), LONG_S)
    with pytest.raises((AttributeError, TypeError, pickle.PicklingError), match="pickle"):
        child.request(("echo", lambda: None), LONG_S)
    assert child.request(("pid",), LONG_S) == pid


def test_affinity_and_environment_hold_before_the_module_is_imported(module: str) -> None:
    cpu = min(os.sched_getaffinity(0))
    with Child(module, cpus=[cpu], environment={"SOME_SWITCH": "on"}) as child:
        assert child.request(("affinity",), LONG_S) == [cpu]
        assert child.request(("variable", "SOME_SWITCH"), LONG_S) == "on"


def test_tvm_finds_no_torch_to_import(module: str, tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("")
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    with Child(module, environment={"PYTHONPATH": path}) as child:
        assert not child.request(("offers", "torch"), LONG_S)


def test_it_collects_garbage_and_tidies_up_at_its_end(module: str, tmp_path: Path) -> None:
    with Child(module) as child:
        assert child.request(("collects",), LONG_S)
        child.request(("tidy_at_the_end", str(tmp_path / "tidy")), LONG_S)
    assert (tmp_path / "tidy").exists()


def test_a_module_that_does_not_exist_is_a_crash() -> None:
    with (
        Child("no_such_module_anywhere") as child,
        pytest.raises(ChildCrash, match="No module named"),
    ):
        child.request(("echo",), LONG_S)


def test_own_session(child: Child) -> None:
    pid = child.request(("pid",), LONG_S)
    assert os.getsid(pid) == pid != os.getsid(0)


def test_interrupted_request_kills_the_child(child: Child) -> None:
    pid = child.request(("pid",), LONG_S)

    def interrupt(_signal: int, _frame: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.3)
        with pytest.raises(KeyboardInterrupt):
            child.request(("hang",), LONG_S)
    finally:
        signal.signal(signal.SIGALRM, before)
    assert gone(pid)
    assert child.request(("echo", 5), LONG_S) == (5,)


@pytest.mark.parametrize("busy", [False, True])
def test_child_dies_with_its_parent(module: str, busy: bool) -> None:
    script = f"""
        from tilewright.core.processes import Child
        child = Child({module!r})
        print(child.request(("pid",), 60), flush=True)
        {'child.request(("hang",), 600)' if busy else "import time; time.sleep(600)"}
    """
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(entry for entry in sys.path if entry),
    }
    parent = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(script)], stdout=subprocess.PIPE, env=environment
    )
    assert parent.stdout is not None
    with parent.stdout as stream:
        pid = int(stream.readline())
    time.sleep(0.1)
    assert psutil.pid_exists(pid)
    parent.kill()
    parent.wait()
    assert gone(pid)


def test_waits_for_spinning_threads_but_not_forever() -> None:
    over = threading.Event()
    spinning = threading.Thread(target=lambda: [None for _ in iter(over.is_set, True)])
    spinning.start()
    try:
        assert not wait_until_asleep(limit_s=0.2)
    finally:
        over.set()
        spinning.join()
    assert wait_until_asleep(limit_s=LONG_S)
