"""Verdicts on claims, from numbers by hand."""

import dataclasses
import math

import pytest

from configs.claims import CLAIMS
from experiments import claims, claims_table, printed, verdicts
from experiments.values import Value
from experiments.verdicts import FAILS, HOLDS, UNDECIDED, Claim, Contrast, Term


def minus(first, second, constant=0.0):
    terms = (Term(1, "t", first, "c"), Term(-1, "t", second, "c"))
    return Contrast(f"{first} - {second}", terms, constant)


def numbers(**rows):
    return {("t", row, "c"): dict(enumerate(found)) for row, found in rows.items()}


def test_a_contrast_is_taken_by_seed():
    found = {("t", "a", "c"): {0: 5.0, 1: 7.0, 2: 9.0}, ("t", "b", "c"): {1: 4.0, 2: 8.0}}
    assert verdicts.evaluate(minus("a", "b", 0.5), found) == (3.5, 1.5)
    assert verdicts.evaluate(minus("a", "missing"), found) == ()


def test_typical_deviation_is_the_root_mean_square_per_unit_of_weight():
    found = numbers(a=[3.0, 5.0], b=[1.0, 1.0], c=[0.0, 4.0], d=[9.0])
    # Differences (2, 4) and (3, 1): variance 2 each, weights 1 and -1.
    contrasts = [minus("a", "b"), minus("a", "c"), minus("a", "d")]
    assert verdicts.typical_deviation(contrasts, found) == pytest.approx(1.0)
    assert math.isnan(verdicts.typical_deviation([minus("a", "d")], found))


def test_a_sign_is_decided_beyond_both_spreads():
    found = numbers(a=[3.0, 5.0], b=[1.0, 1.0])  # differences 2, 4: mean 3, deviation 1.41
    assert verdicts.measure(minus("a", "b"), found, 1.0).sign == 1
    assert verdicts.measure(minus("b", "a"), found, 1.0).sign == -1
    assert verdicts.measure(minus("a", "b"), found, 2.2).sign == 0  # 2.2 * sqrt(2) > 3
    assert verdicts.measure(minus("a", "b"), found, math.nan).sign == 1
    assert verdicts.measure(minus("a", "b", -2.0), found, 0.1).sign == 0


def test_one_seed_must_be_three_typical_deviations_away():
    found = numbers(a=[10.0], b=[5.0])
    assert verdicts.measure(minus("a", "b"), found, 1.0).sign == 1  # 5 > 3 * sqrt(2)
    assert verdicts.measure(minus("a", "b"), found, 1.2).sign == 0
    assert verdicts.measure(minus("a", "b"), found, math.nan).sign == 0


def test_the_typical_deviation_is_that_of_the_same_column_if_it_has_one():
    def difference(column, first="a", second="b"):
        terms = (Term(1, "t", first, column), Term(-1, "t", second, column))
        return Contrast(f"{first} - {second} in {column}", terms)

    found = {
        ("t", row, column): dict(enumerate(values))
        for column, rows in {
            "calm": {"a": [3.0, 3.2], "b": [1.0, 1.0], "c": [0.0, 0.0]},
            "noisy": {"a": [9.0, 1.0], "b": [0.0, 0.0]},
            "short": {"a": [5.0], "b": [0.0]},
        }.items()
        for row, values in rows.items()
    }
    among = [difference("calm"), difference("noisy"), difference("short")]
    words = {
        c.terms[0].column: verdicts.judge(Claim("p-x", "x", (c,)), found, among).word for c in among
    }
    assert words == {"calm": HOLDS, "noisy": UNDECIDED, "short": UNDECIDED}
    (measured,) = verdicts.judge(Claim("p-x", "x", (among[2],)), found, among).measured
    assert measured.spread > 3  # With no other contrast in its column, the table's counts.


def test_numbers_that_are_not_finite_decide_nothing():
    found = numbers(a=[math.nan, 3.0], b=[1.0, 1.0])
    assert verdicts.measure(minus("a", "b"), found, 0.1).sign == 0


def test_a_claim_needs_all_contrasts_and_one_negative_refutes_it():
    best = Claim("p-best", "a is best.", (minus("a", "b"), minus("a", "c")))
    holds = numbers(a=[5.0, 5.1], b=[1.0, 1.0], c=[2.0, 2.0])
    assert verdicts.judge(best, holds, ()).word == HOLDS
    refuted = numbers(a=[5.0, 5.1], c=[9.0, 9.0])
    assert verdicts.judge(best, refuted, ()).word == FAILS
    incomplete = verdicts.judge(best, numbers(a=[5.0, 5.1], b=[1.0, 1.0]), ())
    assert (incomplete.word, incomplete.reason) == (
        UNDECIDED,
        "1 of 2 contrasts are not measured",
    )
    one_seed = verdicts.judge(best, numbers(a=[5.0], b=[1.0], c=[2.0]), ())
    assert (one_seed.word, one_seed.reason) == (UNDECIDED, "one seed")
    close = verdicts.judge(best, numbers(a=[5.0, 1.0], b=[1.0, 5.0], c=[0.0, 0.0]), ())
    assert (close.word, close.reason) == (UNDECIDED, "within the spread over seeds")
    assert close.decisive.contrast.label == "a - b"


def test_only_contrasts_of_the_same_tables_say_how_much_numbers_vary():
    other = Contrast("x - y", (Term(1, "u", "x", "c"), Term(-1, "u", "y", "c")))
    found = {("u", "x", "c"): {0: 0.0, 1: 90.0}, ("u", "y", "c"): {0: 0.0, 1: 0.0}}
    found |= numbers(a=[3.0, 3.1], b=[1.0, 1.0], c=[0.0, 9.0])
    claim = Claim("p-first", "a is above b.", (minus("a", "b"),))
    assert verdicts.judge(claim, found, [minus("a", "b"), other]).word == HOLDS
    assert verdicts.judge(claim, found, [minus("a", "b"), minus("a", "c")]).word == UNDECIDED


def test_every_claim_has_a_unique_id_and_numbers_that_exist():
    assert len({claim.id for claim in CLAIMS}) == len(CLAIMS) >= 30
    known = {
        (table, row.row, row.column)
        for table in printed.table_names()
        for row in printed.load(table)
    }
    for claim in CLAIMS:
        assert claim.contrasts
        for term in claim.terms:
            assert "/figure" in term.name or term[1:] in known, term


def test_the_papers_own_numbers_agree_with_their_claims():
    """All but one: FedLF's Table 1 has CReFF 0.2 points above FedLF at IF=100."""
    refuted = {
        (claim.id, contrast.label)
        for claim in CLAIMS
        for contrast in claim.contrasts
        if claims_table.paper_value(contrast) <= 0
    }
    assert refuted == {("fedlf-if100", "FedLF - CReFF")}


def test_claims_are_chosen_by_paper_and_by_name():
    assert claims.choose(CLAIMS, []) == list(CLAIMS)
    chosen = claims.choose(CLAIMS, ["fedgr", "fedlc-quantity2"])
    assert {claim.paper for claim in chosen} == {"fedgr", "fedlc"}
    with pytest.raises(ValueError, match="Did you mean 'fedlc-quantity2'"):
        claims.choose(CLAIMS, ["fedlc-quantity3"])


def value(row, column, scale, seed, number, seconds=1.0):
    return Value("fedvls/table5", row, column, scale, seed, number, seconds=seconds, model="mlp")


def test_the_table_shows_the_largest_scale_that_decides():
    chosen = claims.choose(CLAIMS, ["fedvls-both-terms-help-most"])
    rows = ("l_dis=1 l_logit=1", "l_dis=1 l_logit=0", "l_dis=0 l_logit=1")
    found = [
        value(row, "cifar10", scale, seed, number + 0.1 * seed, seconds)
        for scale, both, seconds in (("cpu", 5.0, 1.0), ("cpu rounds=9", 9.0, 2.0))
        for row, number in zip(rows, (both, 7.0, 6.0), strict=True)
        for seed in (0, 1)
    ]
    (line,) = claims_table.build(chosen, found, CLAIMS)
    assert (line.scale, line.verdict.word) == ("cpu rounds=9", HOLDS)
    (line,) = claims_table.build(chosen, [v for v in found if v.scale == "cpu"], CLAIMS)
    assert (line.scale, line.verdict.word) == ("cpu", FAILS)
    text = claims_table.markdown([line])
    assert "**does not hold**" in text and "= -2.00" in text and "2 seeds" in text
    assert "--only=fedvls --scale=cpu" in text
    (empty,) = claims_table.build(chosen, [], CLAIMS)
    assert empty.verdict.word == UNDECIDED
    assert "| -- |" in claims_table.markdown([empty])
    lines = claims_table.csv([line]).splitlines()
    assert len(lines) == 3 and lines[1].startswith("fedvls-both-terms-help-most,fedvls,")


def test_a_failure_is_open_again_if_a_larger_scale_decides_its_contrast_otherwise():
    chosen = claims.choose(CLAIMS, ["fedvls-both-terms-help-most"])
    rows = ("l_dis=1 l_logit=1", "l_dis=1 l_logit=0", "l_dis=0 l_logit=1")

    def built(short):
        found = [
            value(row, "cifar10", scale, seed, number + 0.1 * seed, seconds)
            for scale, numbers, seconds in (("short", short, 1.0), ("cpu", (9.0, 7.0), 2.0))
            for row, number in zip(rows, numbers, strict=False)
            for seed in (0, 1)
        ]
        (line,) = claims_table.build(chosen, found, CLAIMS)
        return line.scale, line.verdict.word

    assert built((5.0, 7.0, 3.0)) == ("cpu", UNDECIDED)  # The only negative contrast is overturned.
    assert built((5.0, 7.0, 6.0)) == ("short", FAILS)  # The other one still fails.


def test_an_undecided_claim_shows_the_scale_that_measures_most_of_it():
    chosen = claims.choose(CLAIMS, ["fedvls-both-terms-help-most"])
    rows = ("l_dis=1 l_logit=1", "l_dis=1 l_logit=0", "l_dis=0 l_logit=1")
    found = [
        value(row, "cifar10", scale, seed, 7.0 + seed * number, seconds)
        for scale, numbers, seconds in (("short", (1.0, 2.0, -2.0), 1.0), ("cpu", (1.0, 2.0), 2.0))
        for row, number in zip(rows, numbers, strict=False)
        for seed in (0, 1)
    ]
    (line,) = claims_table.build(chosen, found, CLAIMS)
    assert (line.scale, line.verdict.word) == ("short", UNDECIDED)


def test_late_rounds_decide_where_all_numbers_of_a_table_have_them():
    chosen = claims.choose(CLAIMS, ["fedvls-both-terms-help-most"])
    rows = ("l_dis=1 l_logit=1", "l_dis=1 l_logit=0", "l_dis=0 l_logit=1")
    last = [
        value(row, "cifar10", "cpu", seed, number + 0.1 * seed, 1.0)
        for row, number in zip(rows, (5.0, 7.0, 6.0), strict=True)
        for seed in (0, 1)
    ]
    late = [dataclasses.replace(v, late=9.0 + v.seed if v.row == rows[0] else 4.0) for v in last]
    words = {}
    for name, found in {"last": last, "late": late, "mixed": [last[0], *late[1:]]}.items():
        (line,) = claims_table.build(chosen, found, CLAIMS)
        words[name] = line.verdict.word
    assert words == {"last": FAILS, "late": HOLDS, "mixed": FAILS}
