"""Rules of values: what they accept, what they say, and where they are declared."""

from typing import Annotated, Literal

import numpy as np
import pytest

from fedjax_skew import checks
from fedjax_skew.checks import FLAG, above, at_least, choice, number, text, validated, whole


@pytest.mark.parametrize(
    ("rule", "good", "bad"),
    [
        (number(0, 1), (0, 1, 0.5, np.float32(0.5)), (-0.1, 1.1, True, "0.5", None, 1j)),
        (number(0, 1, above=True), (1, 1e-9), (0, -1)),
        (at_least(2), (2, 2.5, 1e30), (1.99, 1e31, float("inf"), float("nan"), 10**400)),
        (above(0), (1e-30,), (0, float("nan"))),
        (whole(1, 5), (1, 5, np.int64(3)), (0, 6, 2.0, True, "3")),
        (choice("a", "b"), ("a", "b"), ("c", "", None, 1, np.zeros(3))),
        (FLAG, (True, False), (0, 1, "true", None)),
        (text(), ("", "x"), (None, 1)),
        (text(empty=False), ("x",), ("",)),
    ],
)
def test_rules_accept_and_refuse(rule, good, bad):
    for value in good:
        rule.check("field", value)
    for value in bad:
        with pytest.raises(ValueError, match="field=") as caught:
            rule.check("field", value)
        assert "\n" not in str(caught.value)
    rule.check("field", rule.example)


def test_a_choice_suggests_the_nearest():
    with pytest.raises(ValueError, match="Did you mean 'cosine'"):
        choice("constant", "cosine").check("lr_schedule", "cosin")


@pytest.mark.parametrize(
    ("rule", "word", "value"),
    [(whole(), "3", 3), (number(), "3", 3.0), (FLAG, "yes", True), (text(), "3", "3")],
)
def test_words_become_values_of_the_kind(rule, word, value):
    parsed = rule.parse("field", word)
    assert parsed == value and type(parsed) is type(value)


@pytest.mark.parametrize(("rule", "word"), [(whole(), "3.5"), (number(), "x"), (FLAG, "maybe")])
def test_words_of_another_kind_are_refused(rule, word):
    with pytest.raises(ValueError, match=f"field='{word}'"):
        rule.parse("field", word)


@validated("hparams.toy")
def toy(*, tau: Annotated[float, at_least(0)] = 1.0, form: Literal["paper", "code"] = "code"):
    return tau, form


def test_a_validated_function_checks_its_arguments():
    assert toy(tau=2) == (2, "code")
    with pytest.raises(ValueError, match=r"hparams\.toy\.tau=-1 .* at least 0"):
        toy(tau=-1)
    with pytest.raises(ValueError, match=r"hparams\.toy\.form='paprs'.*Did you mean 'paper'"):
        toy(form="paprs")
    with pytest.raises(ValueError, match=r"hparams\.toy='ta'.*Did you mean 'tau'"):
        toy(ta=1)


def test_rules_and_defaults_are_read_from_the_signature():
    assert checks.defaults(toy) == {"tau": 1.0, "form": "code"}
    assert checks.rules(toy)["form"].choices == ("paper", "code")
