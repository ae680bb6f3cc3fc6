"""Runs a module and sends it a signal at a chosen moment.

    python tests/stress/killed.py SIGNAL DIRECTORY PATTERN COUNT DELAY MODULE --flag=value ...

The moment is DELAY seconds after the COUNT-th time that something below DIRECTORY is about to be
written, renamed or deleted and matches PATTERN, e.g. ``os.rename *summary.json*``. With a COUNT of
0 no signal is sent.
"""

import fnmatch
import os
import runpy
import signal
import sys
import threading

CHANGES = ("os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.truncate")


def main(name: str, directory: str, pattern: str, count: str, delay: str, *command: str) -> None:
    """Arms the trap and runs the module."""
    left = int(count)

    def kill() -> None:
        os.kill(os.getpid(), signal.Signals[name])

    def hook(event: str, args: tuple) -> None:
        nonlocal left
        if event == "open":
            if not isinstance(args[2], int) or not args[2] & (os.O_WRONLY | os.O_RDWR):
                return
        elif event not in CHANGES:
            return
        if not isinstance(args[0], (str, os.PathLike)) or not str(args[0]).startswith(directory):
            return
        if fnmatch.fnmatch(f"{event} {' '.join(map(str, args[:2]))}", pattern):
            left -= 1
            if left == 0 and float(delay) > 0:
                threading.Timer(float(delay), kill).start()
            elif left == 0:
                kill()

    sys.addaudithook(hook)
    sys.path.insert(0, os.getcwd())
    sys.argv = list(command)
    runpy.run_module(command[0], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
