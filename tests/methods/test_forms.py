"""One name for forms: a method and its kernels take the same ones, with the same default."""

import typing

import pytest

from fedjax_skew import losses, methods
from fedjax_skew.checks import defaults

KERNELS = [
    ("fedgr", losses.unbalanced_softmax),
    ("fedlc", losses.fedlc),
    ("fedlf", losses.class_center),
    ("fedlf", losses.feature_decorrelation),
    ("fedrs", losses.restricted_softmax),
    ("fedvls", losses.logit_suppression),
]


@pytest.mark.parametrize(("method", "kernel"), KERNELS)
def test_method_and_kernel_have_the_same_forms_and_the_same_default(method, kernel):
    builder = methods.builder(method)
    assert defaults(builder)["form"] == defaults(kernel)["form"]
    forms = [set(typing.get_args(typing.get_type_hints(f)["form"])) for f in (builder, kernel)]
    assert forms[0] == forms[1]
