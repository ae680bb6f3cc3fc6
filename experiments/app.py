"""Shared by all binaries: exit codes, error messages and the cache of compiled programs."""

import os
import pathlib
import re
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Sequence
from typing import NoReturn

import jax
from absl import app, flags, logging

import configs
from fedjax_skew.config import default_config
from fedjax_skew.errors import MissingExtra, NotPrepared, unknown
from fedjax_skew.runs import rundir
from fedjax_skew.runs.train import Diverged, Interrupted

EXIT_FAILED = 1
EXIT_BAD_INPUT = 2
EXIT_DIVERGED = 3
EXIT_DISK = 4
EXIT_INTERRUPTED = 130
MOST_CPU_DEVICES = 8
_DEBUG = "FEDJAX_SKEW_DEBUG"
_TOGETHER = (ValueError, Diverged, Interrupted)  # Raised by all processes of a run together.


# Messages of the parsers of absl and ml_collections, with the kind of value that they expect.
_KINDS = {
    r"invalid literal for int\(\)": "a whole number",
    "could not convert string to float": "a number",
    r"\(?'?Non-boolean argument": "True or False",
}


def cache_programs() -> None:
    """Caches compiled programs in FEDJAX_SKEW_CACHE, unless JAX's own cache is configured."""
    if getattr(jax.config, "jax_compilation_cache_dir", None) is None:
        root = os.environ.get("FEDJAX_SKEW_CACHE", "~/.cache/fedjax_skew")
        jax.config.update("jax_compilation_cache_dir", str(pathlib.Path(root).expanduser() / "xla"))
        # By default JAX does not cache programs that compile in less than a second, which includes
        # most evaluations.
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)


def use_every_core() -> None:
    """Exposes each CPU core as a JAX device, at most 8 because each holds a copy of the dataset.

    Clients then train in parallel, one per core, and no client waits for another one with more
    work. A number of devices set through JAX or XLA_FLAGS takes precedence.
    """
    given = "xla_force_host_platform_device_count" in os.environ.get("XLA_FLAGS", "")
    if not given and getattr(jax.config, "jax_num_cpu_devices", 0) < 0:
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
        jax.config.update("jax_num_cpu_devices", min(cores or 1, MOST_CPU_DEVICES))


def run(main: Callable[[Sequence[str]], None]) -> None:
    """Runs a binary and reports errors that the user can fix in one sentence, without a traceback.

    With FEDJAX_SKEW_DEBUG=1, bad input raises the original error with its traceback.
    """

    def guarded(argv: Sequence[str]) -> None:
        if len(argv) > 1:
            _end(f"{argv[1]!r} is not a flag; pass values as --flag=value.", EXIT_BAD_INPUT)
        use_every_core()
        cache_programs()
        logging.set_verbosity(logging.WARNING)
        # orbax logs every error with a traceback before it raises it.
        logging.get_absl_logger().addFilter(lambda record: "orbax" not in record.pathname)
        _quiet_about_a_full_disk()
        # SIGTERM acts like Ctrl-C. While a run trains, its own handlers save a checkpoint first.
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        try:
            main(argv)
        except (Exception, KeyboardInterrupt) as error:
            found = ending(error)
            if found is None:
                if jax.distributed.is_initialized():
                    _end_alone(traceback.format_exc(), EXIT_FAILED)
                raise
            if found[1] == EXIT_BAD_INPUT and os.environ.get(_DEBUG):
                raise
            alone = isinstance(error, Interrupted) and not jax.distributed.is_initialized()
            if alone or isinstance(error, KeyboardInterrupt) or found[1] == EXIT_DISK:
                # An orderly exit can crash while XLA compiles, and would report a full disk again.
                _end_at_once(*found)
            (_end if isinstance(error, _TOGETHER) else _end_alone)(*found)

    app.run(guarded, flags_parser=_parse)


def ending(error: BaseException) -> tuple[str, int] | None:
    """Returns the message and exit code of an error that the user can fix or caused, or None."""
    if isinstance(error, Diverged):
        return str(error), EXIT_DIVERGED
    if isinstance(error, Interrupted):
        return str(error), EXIT_INTERRUPTED
    if isinstance(error, KeyboardInterrupt):
        text = "Stopped immediately; the same command resumes from the newest checkpoint, if any."
        return str(error) or text, EXIT_INTERRUPTED
    if rundir.disk_is_full(error):
        text = "free some space and run the same command to resume from the newest checkpoint."
        return f"The disk is full; {text}", EXIT_DISK
    if isinstance(error, MemoryError) or "RESOURCE_EXHAUSTED" in str(error):
        fields = "clients_per_chunk, batch_size, eval_batch_size, num_seeds or eval_every"
        reason = str(error).split("\n")[0][:200] or type(error).__name__
        return f"Out of memory ({reason}); lower {fields}.", EXIT_BAD_INPUT
    if isinstance(error, OSError) and error.filename:
        text = f"{str(error.filename)!r} cannot be used ({error.strerror}); choose another path."
        return text, EXIT_BAD_INPUT
    if isinstance(error, NotPrepared):
        command = f"python -m experiments.prepare_data {error.flags}"
        return f"{error} The command is: {command}", EXIT_BAD_INPUT
    if isinstance(error, (ValueError, MissingExtra)):
        return str(error), EXIT_BAD_INPUT
    return None


def _quiet_about_a_full_disk() -> None:
    """Suppresses what library threads print about a full disk, which the run itself reports."""

    def expected(error: BaseException | None) -> bool:
        # orbax closes its event loop while other threads are still writing.
        closed = isinstance(error, RuntimeError) and "Event loop is closed" in str(error)
        return error is not None and (closed or rundir.disk_is_full(error))

    in_thread, in_callback = threading.excepthook, sys.unraisablehook

    def thread_hook(args: threading.ExceptHookArgs) -> None:
        if not expected(args.exc_value):
            in_thread(args)

    def callback_hook(args: "sys.UnraisableHookArgs") -> None:
        if not expected(args.exc_value):
            in_callback(args)

    threading.excepthook, sys.unraisablehook = thread_hook, callback_hook


def _parse(argv: Sequence[str]) -> list[str]:
    """Parses flags with absl and reports a wrong flag or configuration field in one sentence."""
    argv = list(argv)
    given = any(arg == "--config" or arg.startswith("--config=") for arg in argv)
    if "config" in flags.FLAGS and not given:
        # This is not the default of the flag, which would be loaded at import, where its errors
        # cannot be caught.
        argv.insert(1, "--config=configs/quickstart.py")
    for place, arg in enumerate(argv):
        if not arg.startswith("--config="):
            continue
        path, colon, rest = arg.removeprefix("--config=").partition(":")
        if not config_path(path).is_file():
            _end(
                f"config={path!r} is not a file; choose a file such as configs/quickstart.py.",
                EXIT_BAD_INPUT,
            )
        argv[place] = f"--config={config_path(path)}{colon}{rest}"
    try:
        return flags.FLAGS(argv)
    except SystemExit:  # absl has printed its help, which is not a failure.
        sys.exit(0)
    except Exception as error:  # The user can fix whatever a configuration file raises.
        message = str(_wrong_field(argv) or error)
        for pattern, kind in _KINDS.items():
            wrong = rf"flag --([^=]*)=(.*): {pattern}.*"
            message = re.sub(wrong, rf"\1='\2' must be {kind}.", message)
        # ml_collections quotes the traceback of a configuration file; its last line is the message.
        _end(message.rsplit("Error: ", 1)[-1], EXIT_BAD_INPUT)


def config_path(path: str) -> pathlib.Path:
    """Returns the file itself, or the file of that name that was installed with the package."""
    installed = pathlib.Path(configs.__file__).parent.parent / path
    return pathlib.Path(path) if pathlib.Path(path).is_file() else installed


def _wrong_field(argv: Sequence[str]) -> ValueError | None:
    """Returns an error about the first ``--config.a.b`` that does not name a field, or None."""
    for arg in argv:
        if not arg.startswith("--config."):
            continue
        path, _, value = arg.removeprefix("--config.").partition("=")
        node = default_config()
        for depth, name in enumerate(path.split(".")):
            parent = ".".join(["config", *path.split(".")[:depth]])
            if not hasattr(node, "keys"):
                return ValueError(f"{parent} is a value; it has no field {name!r}.")
            if name not in node:
                return unknown(parent, name, node)
            node = node[name]
        if hasattr(node, "keys"):
            how = "set field by field, as in --config.dataset.name=mnist"
            return ValueError(f"config.{path}={value!r} must be {how}.")
    return None


def _end_alone(message: str, code: int) -> NoReturn:
    """Ends a process on an error that its peers do not see.

    In a distributed run it exits immediately, so that the other processes end as well.
    """
    (_end_at_once if jax.distributed.is_initialized() else _end)(message, code)


def _end_at_once(message: str, code: int) -> NoReturn:
    """Prints a message and exits without waiting for other threads."""
    print(message, file=sys.stderr, flush=True)
    sys.stdout.flush()
    os._exit(code)


def _end(message: str, code: int) -> NoReturn:
    print(" ".join(message.split()), file=sys.stderr)
    sys.exit(code)
