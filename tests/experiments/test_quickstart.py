"""The quick start's table, without training."""

import json

from experiments import quickstart
from fedjax_skew.report import render


def test_the_table_has_the_papers_numbers_and_says_what_is_smaller(tmp_path):
    chosen = quickstart.cells(["fedavg", "logit_adjust", "fedlc"], tmp_path)
    cell = chosen[0]
    cell.directory.mkdir(parents=True)
    (cell.directory / "config.json").write_text(json.dumps(cell.config.to_dict()))
    values = {"per_seed": [0.6, 0.7, 0.8]}
    (cell.directory / "summary.json").write_text(
        json.dumps({"status": "finished", "rounds": 50, "accuracy": {"last": values}})
    )
    text = render.to_markdown(quickstart.table(chosen))
    assert "| FedAvg | 70.00 ± 10.00 (63.11, +6.89) |" in text
    assert "| FedLC | -- (75.46) |" in text
    assert "| Logit adjustment | -- |" in text
    assert "rounds: 50 instead of 300." in text
    assert "seeds: 3 instead of 5." in text
    assert "min\\_count" in text


def test_the_advice_names_the_rounds_and_what_to_expect(tmp_path):
    text = quickstart.advice(quickstart.cells(["fedavg"], tmp_path))
    assert "300 rounds and this run for 50" in text
    assert "62 to 68 %" in text
