"""What all binaries share: clear endings, and compiled programs kept between runs."""

import errno
import os
import pathlib
import sys
from collections.abc import Callable, Sequence

import jax
from absl import app, logging

from fedjax_skew.train import Diverged, Interrupted

EXIT_BAD_INPUT = 2
EXIT_DIVERGED = 3
EXIT_DISK = 4
EXIT_INTERRUPTED = 130


def cache_programs() -> None:
    """Keeps compiled programs on disk; FEDJAX_SKEW_CACHE moves them, JAX's own setting wins."""
    if jax.config.jax_compilation_cache_dir is None:
        root = os.environ.get("FEDJAX_SKEW_CACHE", "~/.cache/fedjax_skew")
        jax.config.update("jax_compilation_cache_dir", str(pathlib.Path(root).expanduser() / "xla"))


def run(main: Callable[[Sequence[str]], None]) -> None:
    """Runs a binary; what a user can mend ends in one sentence on stderr, not in a traceback."""

    def guarded(argv: Sequence[str]) -> None:
        cache_programs()
        logging.set_verbosity(logging.WARNING)
        try:
            main(argv)
        except (ValueError, KeyError, AttributeError, TypeError) as error:
            if os.environ.get("FEDJAX_SKEW_DEBUG"):
                raise
            _end(str(error.args[0] if error.args else error), EXIT_BAD_INPUT)
        except Diverged as error:
            _end(str(error), EXIT_DIVERGED)
        except Interrupted as error:
            _end(str(error), EXIT_INTERRUPTED)
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            _end(
                f"The disk is full ({error}); free some space and run the same command to go on "
                "from the last checkpoint.",
                EXIT_DISK,
            )

    app.run(guarded, flags_parser=_parse)


def _parse(argv: Sequence[str]) -> list[str]:
    """absl's parser, with the errors of configurations as one sentence."""
    from absl import flags

    try:
        return app.parse_flags_with_usage(list(argv))
    except (AttributeError, KeyError, ValueError, TypeError) as error:
        _end(str(error.args[0] if error.args else error), EXIT_BAD_INPUT)
        raise flags.Error from error


def _end(message: str, code: int) -> None:
    print(" ".join(message.split()), file=sys.stderr)
    sys.exit(code)
