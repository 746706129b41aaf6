"""What a candidate may not do, each tried by one that does; skipped where the machine lacks the measure."""

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import pytest

from kernelwright.stages.sandbox import confine, view
from kernelwright.stages.sandbox.confine import FILES, NETWORK, PRIVILEGES, PROCESSES, SYSTEM_CALLS, Limits, Phase
from kernelwright.stages.sandbox.keep import descendants
from kernelwright.stages.sandbox.pool import Zygote
from tests.stages.sandbox.trial import attempt, forward, load

REFUSED = "Operation not permitted"
LIBC = "libc = ctypes.CDLL(None, use_errno=True)"


def needs(zygote: Zygote, measure: str) -> None:
    if (reason := zygote.measures[measure]) is not True:
        pytest.skip(f"no measure {measure!r} here: {reason}")


def told(zygote: Zygote, expression: str, phase: Phase = Phase.RUN, **how) -> str:
    """What an expression gives inside, as text."""
    return attempt(zygote, forward(f"raise RuntimeError(repr({expression}))"), phase, **how).said


@pytest.mark.parametrize(
    "statement",
    [
        "socket.socket(socket.AF_INET)",
        "socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)",
        "socket.socket(socket.AF_NETLINK, socket.SOCK_RAW)",
        "os.fork()",
        "os.posix_spawn('/bin/true', ['true'], {})",
        "subprocess.run(['true'])",
        "os.execv('/bin/true', ['true'])",
        "os.kill(1, 0)",
        "os.kill(os.getppid(), 0)",
        "os.kill(0, 0)",
        "os.setpriority(os.PRIO_USER, 0, 10)",
    ],
)
def test_the_run_phase_starts_nothing_and_reaches_nobody(zygote: Zygote, statement: str) -> None:
    needs(zygote, SYSTEM_CALLS)
    assert REFUSED in attempt(zygote, forward(statement)).said


@pytest.mark.parametrize(
    ("x86_64", "aarch64", "arguments"),
    [
        (56, 220, "17, 0, 0, 0, 0"),  # clone(SIGCHLD)
        (57, None, ""),  # fork
        (58, None, ""),  # vfork
        (101, 117, "0, 0, 0, 0"),  # ptrace(TRACEME)
        (310, 270, "1, 0, 0, 0, 0, 0"),  # process_vm_readv
        (272, 97, "0x10000000"),  # unshare(NEWUSER)
        (157, 167, "1, 0, 0, 0, 0"),  # prctl(PR_SET_PDEATHSIG, 0)
        (317, 277, "0, 0, 0"),  # seccomp
        (425, 425, "1, 0"),  # io_uring_setup
        (29, 194, "0, 4096, 0o1000"),  # shmget
        (321, 280, "0, 0, 0"),  # bpf
        (302, 261, "1, 7, 0, 0"),  # prlimit64 of another process
        (200, 130, "1, 0"),  # tkill
    ],
)
def test_the_filter_refuses_the_plain_system_call(
    zygote: Zygote, x86_64: int, aarch64: int | None, arguments: str
) -> None:
    needs(zygote, SYSTEM_CALLS)
    number = x86_64 if os.uname().machine == "x86_64" else aarch64
    if number is None:
        pytest.skip("this architecture has no such call")
    body = f"{LIBC}\nr = libc.syscall({number}, {arguments})\nraise RuntimeError(repr((r, ctypes.get_errno())))"
    assert attempt(zygote, forward(body)).said.startswith("RuntimeError: (-1, 1)")


def test_threads_signals_to_oneself_and_local_pairs_still_work(zygote: Zygote) -> None:
    body = """import signal
heard = []
signal.signal(signal.SIGUSR1, lambda *_: heard.append('signal'))
os.kill(os.getpid(), signal.SIGUSR1)
t = threading.Thread(target=lambda: heard.append('thread')); t.start(); t.join()
a, b = socket.socketpair(); a.send(b'pair'); heard.append(b.recv(9).decode())
heard.append(float((torch.ones(400, 400) @ torch.ones(400, 400)).sum()))
raise RuntimeError(repr(heard))"""
    trial = attempt(zygote, forward(body))
    assert "['signal', 'thread', 'pair', 64000000.0]" in trial.said


@pytest.mark.parametrize("phase", list(Phase))
def test_no_phase_has_a_network(zygote: Zygote, phase: Phase) -> None:
    needs(zygote, NETWORK)
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        said = attempt(zygote, forward(f"socket.create_connection(('127.0.0.1', {port}), 2)"), phase).said
    assert "unreachable" in said or REFUSED in said


def test_the_build_phase_may_start_a_compiler(zygote: Zygote) -> None:
    body = "raise RuntimeError(subprocess.run(['g++', '--version'], capture_output=True, text=True).stdout)"
    assert "Free Software Foundation" in attempt(zygote, forward(body), Phase.BUILD).said


@pytest.mark.parametrize("phase", list(Phase))
def test_no_process_is_visible_but_its_own(zygote: Zygote, phase: Phase) -> None:
    needs(zygote, PROCESSES)
    said = told(zygote, "sorted(int(p) for p in os.listdir('/proc') if p.isdecimal())", phase)
    assert said.startswith("RuntimeError: [1, ")
    assert said.splitlines()[0].count(",") == 1
    reading = attempt(zygote, forward("open('/proc/1/environ', 'rb').read()"), phase).said
    assert "Permission denied" in reading or phase is Phase.TRUSTED


@pytest.mark.parametrize("phase", [Phase.BUILD, Phase.RUN])
def test_no_capability_is_left_and_none_can_be_gained(zygote: Zygote, phase: Phase) -> None:
    needs(zygote, PRIVILEGES)
    said = told(zygote, "open('/proc/self/status').read()", phase)
    assert "CapEff:\\t0000000000000000" in said
    assert "CapBnd:\\t0000000000000000" in said
    assert "NoNewPrivs:\\t1" in said


@pytest.mark.parametrize("phase", [Phase.BUILD, Phase.RUN])
def test_files_that_are_not_the_systems_are_not_there(zygote: Zygote, tmp_path: Path, phase: Phase) -> None:
    needs(zygote, FILES)
    secret = tmp_path / "archive.db"
    secret.write_text("seeds")
    here = Path(__file__).resolve()
    for path in (secret, here, here.parents[3] / "pyproject.toml", "/etc/shadow", "/etc/hosts", "/var", "/home"):
        assert told(zygote, f"os.path.exists({str(path)!r})", phase).startswith("RuntimeError: False"), path
    assert told(zygote, f"os.listdir({str(view.suites())!r})", phase).startswith("RuntimeError: []")
    devices = told(zygote, "[d for d in os.listdir('/dev')]", phase)
    assert "null" in devices
    assert not any(disk in devices for disk in ("vda", "sda", "nvme", "loop", "mem", "kmsg"))


@pytest.mark.parametrize("phase", [Phase.BUILD, Phase.RUN])
def test_nothing_can_be_changed_but_its_own_folder(zygote: Zygote, phase: Phase) -> None:
    needs(zygote, FILES)
    for path in ("/usr/x", "/x", f"{sys.prefix}/x", "/dev/x", "/proc/sys/kernel/core_pattern", "/sys/x"):
        said = attempt(zygote, forward(f"open({path!r}, 'w')"), phase).said
        assert "Read-only" in said or "Permission denied" in said or "No such file" in said, (path, said)
    torch_file = "torch.__file__"
    assert "Read-only" in attempt(zygote, forward(f"open({torch_file}, 'a')"), phase).said
    assert "Read-only" in attempt(zygote, forward("open(sys.modules['candidate'].__file__, 'a')"), phase).said
    for folder in ("os.getcwd()", "os.environ['HOME']", "tempfile.gettempdir()", "'/tmp'", "'/dev/shm'"):
        body = f"open({folder} + '/x', 'w').write('mine'); raise RuntimeError('written')"
        assert "written" in attempt(zygote, forward(body), phase).said, folder


def test_all_that_is_written_is_limited(zygote: Zygote) -> None:
    needs(zygote, FILES)
    body = "for i in range(9):\n    open(f'{tempfile.gettempdir()}/{i}', 'wb').write(bytes(2**20))"
    trial = attempt(zygote, forward(body), limits=Limits(written_bytes=4 * 2**20))
    assert "No space left" in trial.said


def test_what_the_build_phase_writes_to_a_cache_is_there_in_the_run_phase_and_stays_as_it_was(
    zygote: Zygote, tmp_path: Path
) -> None:
    body = f"p = {str(tmp_path / 'note')!r}\nopen(p, 'a').write('|')\nraise RuntimeError(open(p).read() + '.')"
    assert "|." in attempt(zygote, forward(body), Phase.BUILD, [tmp_path]).said
    if zygote.measures[FILES] is True:
        for _ in range(2):
            assert "||." in attempt(zygote, forward(body), Phase.RUN, [tmp_path]).said
        assert (tmp_path / "note").read_text() == "|"


def test_a_pipe_left_in_a_cache_holds_nobody_up(zygote: Zygote, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "file").write_text("x")
    assert "'file'" in told(zygote, f"os.listdir({str(tmp_path)!r})", caches=[tmp_path])


def test_several_threads_spawn_at_once_and_no_descriptor_is_left(zygote: Zygote) -> None:
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
    said: list[str] = []
    threads = [
        threading.Thread(target=lambda i=i: said.append(told(zygote, f"'candidate {i}'")[:24])) for i in range(6)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {f"RuntimeError: 'candidate {i}"[:24] for i in range(6)} == {s[:24] for s in said}
    assert len(os.listdir("/proc/self/fd")) == before  # noqa: PTH208
    assert not descendants(zygote.process.pid)


def test_memory_beyond_the_limit_ends_it_with_the_figures(zygote: Zygote) -> None:
    body = "x = torch.ones(300_000_000)\ntime.sleep(10)"
    trial = attempt(zygote, forward(body), memory_bytes=900_000_000)
    assert trial.kind == "oom"
    assert trial.said.endswith("allowed 900 MB")


def test_a_fork_bomb_ends_and_nothing_of_it_is_left(zygote: Zygote) -> None:
    trial = attempt(zygote, forward("while True: os.fork()"), Phase.BUILD)
    assert trial.kind == "oom"
    assert "processes, allowed" in trial.said or "MB, allowed" in trial.said
    assert not descendants(zygote.process.pid)


def test_a_runner_ends_with_its_zygote() -> None:
    own = Zygote()
    runner = own.spawn(Phase.BUILD)
    load(runner, forward("os.fork(); os.setsid(); time.sleep(60)"))
    runner.post("call", slots=[0])
    family = descendants(own.process.pid)
    assert runner.pid in family
    own.close()
    gone = [pid for pid in family if not Path(f"/proc/{pid}").exists()]
    assert gone == family or all(_ends(pid) for pid in family)


def _ends(pid: int) -> bool:
    import time

    deadline = time.monotonic() + 10
    while time.monotonic() < deadline and Path(f"/proc/{pid}").exists():
        time.sleep(0.01)
    return not Path(f"/proc/{pid}").exists()


def test_what_it_needs_is_seen_in_a_temporary_folder_too(zygote: Zygote, tmp_path: Path) -> None:
    """The project may have been cloned into /tmp, and its packages lie there."""
    if zygote.measures[FILES] is not True:
        pytest.skip("it sees all files here")
    shown = Path(tempfile.mkdtemp(dir="/tmp"))
    beside = Path(tempfile.mkdtemp(dir="/tmp"))
    (shown / "package.txt").write_text("needed")
    code = (
        "import json, os, pathlib, stat\n"
        "from kernelwright.stages.sandbox import confine, keep, leftovers, view\n"
        "confine.become_able()\n"
        f"home = confine.make_home(pathlib.Path({str(tmp_path)!r}))\n"
        f"plan = confine.Plan([*view.needed(dict(os.environ)), pathlib.Path({str(shown)!r})], {{}}, True)\n"
        "r, w = os.pipe()\n"
        "def child():\n"
        "    confine.enter(home, confine.Phase.RUN, [], confine.Limits(), plan)\n"
        f"    text = open({str(shown / 'package.txt')!r}).read()\n"
        f"    said = [text, os.path.exists({str(beside)!r}), leftovers.left([])]\n"
        "    os.write(w, json.dumps(said).encode())\n"
        "kept = keep.fork_apart(child, apart=True)\n"
        "os.close(w)\n"
        "print(open(r).read())\n"
        "os.waitpid(kept.pid, 0)\n"
    )
    try:
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        assert json.loads(done.stdout) == ["needed", False, []], done.stderr
    finally:
        shutil.rmtree(shown)
        beside.rmdir()


ASK = "import json; from kernelwright.stages.sandbox import confine; print(json.dumps(confine.available()))"


def test_every_measure_is_answered_for_an_ordinary_user_too() -> None:
    source = str(Path(confine.__file__).parents[3])
    for interpreter in (sys.executable, "/usr/bin/python3"):
        if os.geteuid() == 0 and Path(interpreter).exists():
            who = {"user": 65534, "group": 65534, "extra_groups": []}
            try:
                ask = [interpreter, "-c", ASK]
                done = subprocess.run(ask, env={"PYTHONPATH": source}, capture_output=True, text=True, cwd="/", **who)
            except PermissionError:
                continue
            if done.returncode == 0:
                outcome = json.loads(done.stdout)
                assert set(outcome) == set(confine.MEASURES)
                # No privilege is needed for these.
                assert outcome[PRIVILEGES] is True
                assert outcome[SYSTEM_CALLS] is True
                return
    pytest.skip("no interpreter here that another user may start")


def test_a_measure_that_is_not_there_is_left_out_and_named(tmp_path: Path) -> None:
    works = dict.fromkeys(confine.MEASURES, "not on this machine")
    code = (
        "import json, sys; from pathlib import Path; from kernelwright.stages.sandbox.confine import *\n"
        f"home = make_home(Path({str(tmp_path)!r}))\n"
        f"print(json.dumps(enter(home, Phase.RUN, [], Limits(), Plan([], {works!r}, False))))"
    )
    env = {"PYTHONPATH": str(Path(confine.__file__).parents[3])}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True)
    assert json.loads(done.stdout) == works, done.stderr
