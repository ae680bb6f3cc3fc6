"""Names in tables and figures come from the registries."""

import pytest

from fedjax_skew.report import names


@pytest.mark.parametrize(
    "spell, name, expected",
    [
        (names.method, "fedlc+scaffold", "FedLC + SCAFFOLD"),
        (names.dataset, "cifar10", "CIFAR-10"),
        (names.model, "resnet8", "ResNet-8"),
        (names.model, "dnn3", "MLP"),
    ],
)
def test_registered_names_are_spelled_out_and_others_stay(spell, name, expected):
    assert spell(name) == expected
    assert spell("mine") == "mine"
