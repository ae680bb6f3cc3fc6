"""Names with arguments: what is read, and that everything else is one sentence."""

from typing import Annotated, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedjax_skew import checks
from fedjax_skew.data import partition, spec


def f(
    rng,
    *,
    beta: Annotated[float, checks.number(0.1, 9), spec.also("alpha")],
    count: Annotated[int, checks.whole(1)] = 3,
    on: bool = True,
    path: Annotated[str, checks.text(empty=False)] = "x",
    if_: Literal["a", "b"] = "a",
):
    """Does nothing,
    in one line.

    More words.
    """


def read(text):
    return spec.bind(spec.parse(text, "field"), f, "field")


def test_signature_and_summary_are_read_from_the_function():
    assert spec.signature("f", f) == "f(beta, count=3, on=true, path=x, if=a)"
    assert spec.summary(f) == "Does nothing, in one line."


def test_a_missing_argument_is_shown_in_an_example():
    with pytest.raises(ValueError, match=r"f\(beta=0.1\)|f\(beta=9\)"):
        read("f")


def test_a_trailing_underscore_is_not_written():
    assert read("f(1, if=b)")["if_"] == "b"
    with pytest.raises(ValueError, match="Did you mean 'if'"):
        read("f(1, if_=b)")


@pytest.mark.parametrize(
    "text", ["f(0.5)", "f(beta=0.5)", " f ( beta = 0.5 ) ", "f(alpha=.5)", "f(0.5, count=3)"]
)
def test_spellings_of_the_same_call(text):
    assert read(text) == {"beta": 0.5, "count": 3, "on": True, "path": "x", "if_": "a"}


def test_quotes_protect_commas_and_brackets():
    assert read("f(1, path='a, (b) = \"c\".csv', on=false)")["path"] == 'a, (b) = "c".csv'


def test_plus_inside_brackets_does_not_split():
    assert spec.split("a(x=1+2)+b('+')", "+", "field") == ["a(x=1+2)", "b('+')"]


@pytest.mark.parametrize(
    "text",
    [
        *("f(beta=0.05)", "f(10)", "f(inf)", "f(1,count=1.5)", "f(1,1,true,y,a,z)", "f(,)", "f()"),
        *("f(1,path=)", "f(beta=1,2)", "f", "f(1)x", "1f", "f(1,beta=2)", "f(zeta=2)", "f(1e999)"),
        *("f(nan)", "f(1,count=0)", "f(1,on=2)", "f(1,if=c)"),
    ],
)
def test_wrong_calls_are_one_sentence(text):
    with pytest.raises(ValueError) as caught:
        read(text)
    assert "\n" not in str(caught.value)
    assert str(caught.value).startswith("field")


@settings(max_examples=300, deadline=None)
@given(st.text(alphabet="dirichletongaf=()+,.'\" 0123456789-_\n", max_size=40))
def test_any_text_is_read_or_refused(text):
    try:
        partition.check(text)
    except ValueError as error:
        assert str(error)
