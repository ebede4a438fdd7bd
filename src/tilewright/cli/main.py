"""The command `tilewright`: reads the command line, calls a verb, turns errors into exit codes."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence

from cyclopts import App, CycloptsError, Group

from tilewright.cli import (
    collect,
    compare,
    db,
    evaluate,
    explain,
    faults,
    fit,
    machine,
    optimize,
    plan,
    predict,
    profile,
    run,
    serve,
    show,
    solve,
    streams,
    study,
)
from tilewright.cli.help_pages import (
    EXPERIMENTS,
    FASTER,
    FORECASTS,
    GENERAL,
    RECORDS,
    TIMES,
    examples,
    from_packages,
)
from tilewright.core import errors, signals

HELP = (
    "Make deep-learning inference faster with Apache TVM, and see why it is as fast as it is.\n\n"
    "Data goes to stdout, progress and warnings go to stderr. Exit codes: 0 success, 1 a check "
    "that was asked for failed, 2 wrong usage, 3 a target or peer cannot be used, 4 a bad model or "
    "file, 5 a database problem, 70 a bug of tilewright, 130 interrupted (Ctrl-C, SIGTERM, "
    "SIGHUP)."
)

_VERBS: tuple[tuple[Group, tuple[Callable[..., int | None], ...]], ...] = (
    (FASTER, (optimize.optimize, optimize.tune, run.run, serve.serve)),
    (TIMES, (profile.profile, compare.compare, show.show)),
    (
        FORECASTS,
        (predict.predict, explain.explain, collect.collect, fit.fit, evaluate.evaluate),
    ),
    (EXPERIMENTS, (solve.solve, plan.plan, plan.simulate)),
    (RECORDS, (machine.doctor, machine.targets)),
)


def _version() -> str:
    import tilewright

    return f"tilewright {tilewright.__version__}"


def build_app(*, helping: bool = False) -> App:
    """The command line with all verbs; `helping` has their help say what other packages add."""
    app = App(name="tilewright", help=HELP, version=_version, help_format="plaintext")
    app.group_commands = GENERAL
    for group, verbs in _VERBS:
        for order, verb in enumerate(verbs):
            added = from_packages(verb.__name__) if helping else ""
            shown = added + examples(verb.__name__)
            app.command(verb, group=group, sort_key=order, help_epilogue=shown)
    app.command(study.study)
    app.command(db.db)
    return app


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command line, by default the process's own, and return its exit code."""
    tokens = list(sys.argv[1:] if argv is None else argv)
    streams.never_fail_on_encoding()
    try:
        with signals.as_interrupts():
            return _run(tokens)
    except CycloptsError as error:
        return faults.tell_usage(error, tokens)
    except errors.TilewrightError as error:
        return faults.tell_known(error)
    except KeyboardInterrupt:
        return faults.tell_interrupted(tokens)
    except Exception as error:  # noqa: BLE001 - the last resort: every other error is our bug
        return faults.tell_interrupted(tokens) if _interrupted(error) else faults.tell_bug(error)


def _interrupted(error: BaseException | None) -> bool:
    """Whether Ctrl-C is behind an error: an extension module that is being imported turns it into
    an ImportError."""
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__cause__
    return error is not None


def _run(tokens: list[str]) -> int:
    app = build_app(helping=bool({"--help", "-h"} & set(tokens)))
    command, bound, _ = app.parse_args(tokens, exit_on_error=False, print_error=False)
    code = command(*bound.args, **bound.kwargs)
    return code if isinstance(code, int) else 0
