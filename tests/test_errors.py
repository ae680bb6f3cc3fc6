"""Sentences for wrong input and missing packages."""

import pytest

from fedjax_skew import errors


def test_a_missing_package_is_one_sentence_that_names_the_extra():
    with pytest.raises(errors.MissingExtra, match=r"no_such.*fedjax_skew\[report\]") as found:
        errors.import_extra("no_such.part", "report")
    assert isinstance(found.value, ImportError)


def test_a_fault_inside_a_package_is_not_hidden(tmp_path, monkeypatch):
    (tmp_path / "half_there.py").write_text("import no_such\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModuleNotFoundError) as found:
        errors.import_extra("half_there", "report")
    assert not isinstance(found.value, errors.MissingExtra)


def test_an_unknown_name_suggests_the_nearest():
    with pytest.raises(ValueError, match="Did you mean 'fedlc'"):
        raise errors.unknown("method", "fedlcc", ["fedlc", "moon"])
