"""A driver that is made up, of one card: its memory is this process's, the work of engines that
are made up is done at once, and a graph does it again. FAKE_CUDA is `no graphs` or `no memory`."""

from __future__ import annotations

import os

from helpers.fakes.cuda_bindings import CudaBindings, Status

_FAULT = os.environ.get("FAKE_CUDA", "")


class _Driver(CudaBindings):
    recorded = None
    streams = 0

    def _cuStreamCreate(self, _flags):
        self.streams += 1
        return (self.streams,)

    def _cuStreamBeginCapture(self, _stream, _mode):
        self.recorded = []
        return ()

    def _cuStreamEndCapture(self, _stream):
        work, self.recorded = self.recorded, None
        return (work,)

    def _cuGraphInstantiate(self, work, _flags):
        return (work,)

    def _cuGraphLaunch(self, work, _stream):
        for again in work:
            again()
        return ()


DRIVER = _Driver()
if _FAULT == "no graphs":
    DRIVER.fails["cuStreamEndCapture"] = Status.CUDA_ERROR_INVALID_VALUE
if _FAULT == "no memory":
    DRIVER.fails["cuMemAlloc"] = Status.CUDA_ERROR_OUT_OF_MEMORY


def asked(work):
    """Do it, and again whenever a graph is replayed that it is part of."""
    work()
    if DRIVER.recorded is not None:
        DRIVER.recorded.append(work)


def __getattr__(name):
    return getattr(DRIVER, name)
