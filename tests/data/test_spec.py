"""Names with arguments: what is read, and that everything else is one sentence."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedjax_skew.data import partition, spec

PARAMETERS = (
    spec.Parameter("beta", float, low=0.1, high=9, aliases=("alpha",)),
    spec.Parameter("count", int, 3, low=1),
    spec.Parameter("on", bool, True),
    spec.Parameter("path", str, "x"),
)


def read(text):
    return spec.bind(spec.parse(text, "field"), PARAMETERS, "field")


@pytest.mark.parametrize(
    "text", ["f(0.5)", "f(beta=0.5)", " f ( beta = 0.5 ) ", "f(alpha=.5)", "f(0.5, count=3)"]
)
def test_spellings_of_the_same_call(text):
    assert read(text) == {"beta": 0.5, "count": 3, "on": True, "path": "x"}


def test_quotes_protect_commas_and_brackets():
    assert read("f(1, path='a, (b) = \"c\".csv', on=false)")["path"] == 'a, (b) = "c".csv'


def test_plus_inside_brackets_does_not_split():
    assert spec.split("a(x=1+2)+b('+')", "+", "field") == ["a(x=1+2)", "b('+')"]


@pytest.mark.parametrize(
    "text",
    [
        *("f(beta=0.05)", "f(10)", "f(inf)", "f(1,count=1.5)", "f(1,1,true,y,z)", "f(,)", "f()"),
        *("f(1,path=)", "f(beta=1,2)", "f", "f(1)x", "1f", "f(1,beta=2)", "f(zeta=2)", "f(1e999)"),
        *("f(nan)", "f(1,count=0)", "f(1,on=2)"),
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
