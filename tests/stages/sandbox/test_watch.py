"""What a candidate tries is told, and honest work is not."""

import pytest

from kernelwright.stages.sandbox.confine import Phase
from kernelwright.stages.sandbox.pool import Zygote
from tests.stages.sandbox.trial import attempt, forward

SAVE = "y = torch.ones(9)\ntorch.save(y, os.path.join({folder}, 'kept.pt'))"
LIBC = "libc = ctypes.CDLL(None)\n"


STARTS = [
    ("socket.socket(socket.AF_INET).connect_ex(('127.0.0.1', 9))", "candidate.py:3 used the network"),
    ("socket.getaddrinfo('localhost', 80)", "used the network"),
    (
        "KIDS = [subprocess.Popen(['sleep', '3']) for _ in range(20)]",
        "started a process (subprocess.Popen sleep 3)",
    ),
    ("os.system('true')", "started a process (os.system"),
    ("os.fork() or os._exit(0)", "started a process (os.fork)"),
    ("os.posix_spawn('/bin/sleep', ['sleep', '1'], {})", "started a process (os.posix_spawn"),
    (
        "threading.Thread(target=os.system, args=('sleep 3',)).start(); time.sleep(0.2)",
        "a thread of its own started",
    ),
]


@pytest.mark.parametrize(("top", "told"), STARTS)
def test_compilers_may_start_in_the_build_phase_and_nothing_else(zygote: Zygote, top: str, told: str) -> None:
    trial = attempt(zygote, forward("return x", top=top), Phase.BUILD)
    assert any(told in sentence for sentence in trial.seen), trial


@pytest.mark.parametrize(
    ("top", "told"),
    [
        *STARTS,
        ("os.kill(os.getppid(), 0)", "sent a signal to process"),
        ("open('/etc/passwd').read()", "candidate.py:3 looked into /etc/passwd"),
        ("open('../../../../srv/task/reference.py')", "looked into /srv/task/reference.py"),
        ("import pathlib; pathlib.Path('/srv/archive.db').read_bytes()", "looked into /srv/archive.db"),
        ("torch.load('/var/lib/answers.pt')", "looked into /var/lib/answers.pt"),
        ("os.listdir('/proc')", "looked into /proc"),
        ("open('/proc/self/mem', 'r+b')", "tried to change /proc/self/mem"),
        ("open('/proc/1/environ')", "looked into /proc/1/environ"),
        ("open('/usr/lib/marker', 'w')", "tried to change /usr/lib/marker"),
        ("os.rename('x', os.path.join(os.path.dirname(torch.__file__), 'x.py'))", "tried to change"),
        ("N = sum('KEY' in name for name in os.environ)", "listed the environment"),
        ("dict(os.environ)", "listed the environment"),
        ("os.environ.get('OPENAI_API_KEY')", "asked the environment for OPENAI_API_KEY"),
        ("os.getenv('HF_TOKEN')", "asked the environment for HF_TOKEN"),
        ("os.environ['LD_PRELOAD'] = 'x.so'", "set LD_PRELOAD"),
        ("os.putenv('PYTHONSTARTUP', 'x.py')", "set PYTHONSTARTUP"),
        ("ctypes.CDLL(None).ptrace", "took the C library's ptrace"),
        (
            "torch.allclose = torch.allclose; torch.nn.Module.eval.__code__ = (lambda self: self).__code__",
            "replaced __code__",
        ),
    ],
)
def test_what_it_tries_is_told_whether_or_not_it_is_let(zygote: Zygote, top: str, told: str) -> None:
    trial = attempt(zygote, forward("return x", top=top))
    assert any(told in sentence for sentence in trial.seen), trial


@pytest.mark.parametrize("folder", ["tempfile.gettempdir()", "os.environ['HOME']", "'/tmp'", "'/dev/shm'"])
def test_a_result_left_for_later_processes_is_found(zygote: Zygote, folder: str) -> None:
    trial = attempt(zygote, forward(SAVE.format(folder=folder)))
    assert any("kept.pt" in sentence for sentence in trial.seen), trial


def test_so_is_one_in_a_folder_or_the_working_directory_or_written_below_python(zygote: Zygote) -> None:
    nested = "os.makedirs(tempfile.gettempdir() + '/deep/er')\n" + SAVE.format(
        folder="tempfile.gettempdir(), 'deep/er'"
    )
    assert "deep/er/kept.pt" in str(attempt(zygote, forward(nested)).seen)
    assert "kept.pt" in str(attempt(zygote, forward(SAVE.format(folder="'.'"))).seen)
    by_c = (
        f"{LIBC}libc.fopen.restype = ctypes.c_void_p\n"
        "f = libc.fopen((tempfile.gettempdir() + '/memo.bin').encode(), b'wb')\n"
        "libc.fputs(b'12345678', ctypes.c_void_p(f)); libc.fclose(ctypes.c_void_p(f))"
    )
    assert "memo.bin" in str(attempt(zygote, forward(by_c)).seen)


HONEST = [
    "os.environ.get('CUDA_HOME'); os.environ.setdefault('CXX', 'g++'); 'CC' in os.environ",
    "os.environ['TORCH_CUDA_ARCH_LIST'] = '9.0'; os.environ.pop('MAX_JOBS', None)",
    "open('/proc/cpuinfo').read(); os.listdir('/sys/devices/system/cpu'); os.cpu_count()",
    "open('/proc/self/maps').read(); open('/sys/devices/system/cpu/online').read()",
    "d = tempfile.mkdtemp(); open(d + '/kernel.cu', 'w').write('//'); open(d + '/tuned.json', 'w').write('{}')",
    "f = tempfile.NamedTemporaryFile('w', suffix='.py', delete=False); f.write('x = 1'); f.close()",
    "open(tempfile.gettempdir() + '/kernel.cu', 'w').write('// a kernel')",
    "os.makedirs('build', exist_ok=True); open('build/kernel.cpp', 'w').write('//')",
    "b = os.path.join('/tmp', 'build'); os.makedirs(b, exist_ok=True); open(b + '/kernel.cpp', 'w').write('//')",
    "open(__file__).read(); import inspect; inspect.getsource(torch.nn.Linear)",
    "libc = ctypes.CDLL(None); libc.malloc; libc.free",
    "import triton, numpy, platform; platform.platform(); platform.processor()",
    "import ctypes.util; ctypes.util.find_library('m')",
    "import warnings, logging, urllib.parse; warnings.warn('slow'); logging.getLogger().info('x')",
    "import random; random.seed(3); torch.manual_seed(3)",
    "t = threading.Thread(target=print); t.start(); t.join()",
    "import concurrent.futures as c; list(c.ThreadPoolExecutor(2).map(abs, range(9)))",
    "os.getpid(); sys._getframe(); os.kill(os.getpid(), 0)",
    "import torch.utils.cpp_extension as e; e.CUDA_HOME; e.include_paths()",
]


@pytest.mark.parametrize("phase", [Phase.BUILD, Phase.RUN])
def test_honest_work_is_not_told(zygote: Zygote, phase: Phase) -> None:
    trial = attempt(zygote, forward("return x", top="\n".join(HONEST)), phase)
    assert trial.seen == []
    assert trial.kind == "", trial.said


def test_a_compiler_that_torch_starts_is_not_the_candidates_doing(zygote: Zygote) -> None:
    body = "import torch.utils.cpp_extension as e\ne.get_compiler_abi_compatibility_and_version('g++')"
    assert attempt(zygote, forward(body), Phase.BUILD).seen == []


def test_one_thing_done_over_and_over_is_told_once(zygote: Zygote) -> None:
    body = "for _ in range(1000):\n    os.environ.get('API_KEY')"
    assert len(attempt(zygote, forward(body)).seen) == 1
