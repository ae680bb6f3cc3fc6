"""Real processes, killed and stopped: nothing is lost and every number is the same.

``python -m tests.stress.many_kills`` does so at a hundred random moments.
"""

import os
import re
import signal

from configs.quickstart import get_config
from fedjax_skew.runs import checkpoint, rundir
from fedjax_skew.runs.train import train_and_evaluate
from tests.stress.processes import SMALL, TRAIN, contents, finish


def test_a_run_that_is_killed_and_stopped_ends_as_if_nothing_had_happened(tmp_path):
    config = get_config()
    config.update(SMALL)
    train_and_evaluate(config, tmp_path / "whole", progress=False)
    # Killed while the second checkpoint is made whole: the first one is used.
    kill = {"code": -signal.SIGKILL, "count": 1}
    finish(tmp_path, *TRAIN, **kill, pattern="os.rename *checkpoints/4*")
    assert checkpoint.rounds(tmp_path / "run/checkpoints") == [2]
    # Stopped in the fourth round: it finishes that round, saves, and says what is saved.
    term = {"code": 130, "name": "SIGTERM", "count": 1}
    said = finish(tmp_path, *TRAIN, **term, pattern="open *metrics.jsonl a")
    assert said == (
        "Stopped by SIGTERM after round 4 of 6; round 4 is saved, the same command resumes from "
        "there."
    )
    assert checkpoint.rounds(tmp_path / "run/checkpoints") == [4, 2]
    # Killed when the summary is written, but not yet in its place.
    finish(tmp_path, *TRAIN, **kill, pattern="os.rename *summary.json*")
    finish(tmp_path, *TRAIN)
    assert contents(tmp_path / "run") == contents(tmp_path / "whole")


def test_a_directory_in_use_is_refused_and_one_of_a_dead_process_is_not(tmp_path):
    with rundir.owned(tmp_path / "run"):
        said = finish(tmp_path, *TRAIN, code=2)
    assert f"run' is in use by process {os.getpid()} on " in said
    # The same file, which still names a process, but nobody holds it: the run starts, and diverges.
    said = finish(tmp_path, *TRAIN, "--config.client_lr=1e30", code=3)
    assert re.search(r"fedavg.* round 1.* client.*1e\+30", said)
    assert said in (tmp_path / "run/summary.json").read_text()
