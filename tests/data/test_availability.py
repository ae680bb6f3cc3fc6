"""Files that say which clients a round may ask."""

import numpy as np
import pytest

from fedjax_skew.data import availability


def load(path, text, kind, clients=4, cohort=2):
    path.write_text(text)
    return availability.load(f"{kind}(path={path})", clients, cohort)


def test_uniform_needs_no_table():
    assert availability.load("uniform", 4, 2) is None


def test_weights_are_read_one_per_client(tmp_path):
    found = load(tmp_path / "w", "1\n0\n2, 0.5\n", "weighted")
    np.testing.assert_allclose(np.exp(found), [[1, 0, 2, 0.5]], rtol=1e-6)


def test_a_schedule_has_one_line_per_round(tmp_path):
    found = load(tmp_path / "s", "0,1\n\n3 2 0\n", "schedule")
    np.testing.assert_array_equal(np.exp(found), [[1, 1, 0, 0], [0, 0, 0, 0], [1, 0, 1, 1]])


@pytest.mark.parametrize(
    ("kind", "text", "words"),
    [
        ("weighted", "1 2 3", "3 numbers for 4 clients"),
        ("weighted", "1 2 3 x", "one number per client"),
        ("weighted", "1 2 3 -1", "at least 0"),
        ("weighted", "1 2 3 nan", "at least 0"),
        ("weighted", "1 0 0 0", "1 clients of a weight above 0, but a round asks 2"),
        ("schedule", "0\n4", "'4' in line 2"),
        ("schedule", "-1", "'-1' in line 1"),
        ("schedule", "\n\n", "names no client"),
    ],
)
def test_a_wrong_file_is_one_sentence(tmp_path, kind, text, words):
    with pytest.raises(ValueError) as error:
        load(tmp_path / "file", text, kind)
    assert words in str(error.value) and str(error.value).startswith("availability=")


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("sometimes", "uniform"),
        ("weighted", "path"),
        ("weighted(path=)", "path"),
        ("weighted(file=x)", "path"),
        ("uniform(path=x)", "argument"),
        ("weighted(path=/nowhere/file)", "cannot be read"),
    ],
)
def test_a_wrong_value_is_one_sentence(value, words):
    with pytest.raises(ValueError, match=words):
        availability.load(value, 4, 2)
