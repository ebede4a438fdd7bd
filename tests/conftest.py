"""What holds for all tests: threads that wait do not spin, freed memory is kept for what comes
next, the garbage collector leaves alone what lives as long as they do, workers are forks of a
process that has imported everything, no file is translated twice, Ctrl-C is heeded, and no drawn
example has a deadline."""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

from helpers.processes.rewritten_ahead import rewrite_ahead
from helpers.processes.warm_workers import warm_workers

# Libraries read these when they are loaded: here, in test processes and in workers. What spins
# after a kernel takes the time of another process's test on a machine of two cores.
os.environ.setdefault("TVM_THREAD_POOL_SPIN_COUNT", "0")
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

# The C library reads these when a process begins: here, in the processes that this one starts. LLVM
# takes and frees megabytes for each kernel. Giving them back to the system each time, to take the
# same pages again, is a twentieth of the time of tests that compile.
_MIB = 1 << 20
_KEPT = {"trim_threshold": 256 * _MIB, "mmap_threshold": 32 * _MIB, "top_pad": 16 * _MIB}
os.environ.setdefault(
    "GLIBC_TUNABLES", ":".join(f"glibc.malloc.{name}={size}" for name, size in _KEPT.items())
)

# A shell has what it starts in the background ignore Ctrl-C, and all that this starts ignores it,
# too: tests that interrupt something would wait for ten minutes.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

settings.register_profile(
    "untimed", settings.default, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("untimed")

gc.disable()  # modules and nine thousand tests: none of it becomes garbage while it is collected


@pytest.hookimpl(tryfirst=True)
def pytest_collection(session: pytest.Session) -> None:
    """Each process begins with another part of what all need."""
    rewrite_ahead(session.config.args, session.config.invocation_params.dir)


def pytest_collection_finish() -> None:
    """From here on it looks at what tests make, and at nothing that was there before."""
    gc.freeze()
    gc.enable()


@pytest.fixture(autouse=True, scope="session")
def workers_start_warm() -> Iterator[None]:
    """The second that a worker's imports take is left out."""
    with warm_workers():
        yield
