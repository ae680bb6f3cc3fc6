"""The report page, without and (where there is one) with a browser."""

import fcntl
import html.parser
import json
import re
import shutil
import subprocess

import numpy as np
import pytest

from fedjax_skew.report import page as report
from fedjax_skew.report import store, svg

EVIL = "<script>alert(1)</script>\"'&"


def fake_run(path, method, accuracy, *, rounds=6, done=6, seeds=2, failure="", **fields):
    """A run directory as training writes it."""
    path.mkdir(parents=True)
    config = {
        "method": method,
        "dataset": {"name": "mnist", "data_dir": "/somewhere"},
        "hparams": {method: {"lam": 0.1}, "unused": {"lam": 3}},
        "partition": "dirichlet(beta=0.1)",
        "model": "mlp",
        "num_clients": 3,
        "num_seeds": seeds,
        "rounds": rounds,
        **fields,
    }
    (path / "config.json").write_text(json.dumps(config))
    (path / "partition.csv").write_text("5,0,1\n0,7,2\n")
    with open(path / "metrics.jsonl", "w") as f:
        for r in range(1, done + 1):
            value = accuracy * r / rounds
            line = {"round": r, "seconds": 2.0 * r, "accuracy": [value] * seeds}
            line |= {"macro_f1": [None] * seeds, "per_class_accuracy": [[value, None]] * seeds}
            f.write(json.dumps(line) + "\n")
        if done < rounds:
            f.write('{"round": 99, "accur')
    if failure:
        (path / "failure.json").write_text(json.dumps({"reason": failure}))
    if done == rounds:
        summary = {"status": "finished", "rounds": rounds, "versions": {"jax": "9.9"}}
        (path / "summary.json").write_text(json.dumps(summary))
    return path


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    root = tmp_path_factory.mktemp("runs")
    fake_run(root / "a", "fedavg", 0.9)
    fake_run(root / "b", "fedlc", 0.5)
    fake_run(root / "c", "fedlc", 0.7, hparams={"fedlc": {"lam": 0.2}})
    fake_run(root / "d", EVIL, 0.3, partition=f"natural{EVIL}")
    fake_run(root / "e", "moon", 0.2, done=2)
    fake_run(root / "f", "fedmr", 0.1, done=1, failure=f"not finite {EVIL}")
    (root / "g").mkdir()
    (root / "g" / "failure.json").write_text('{"reason": "no data"}')
    (root / "a" / "checkpoints").mkdir()
    (root / "a" / "checkpoints" / "config.json").write_text("{}")
    return root


@pytest.fixture(scope="module")
def text(runs):
    with open(runs / "e" / ".lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return report.page(store.find(runs), f"Runs {EVIL}")


class Reader(html.parser.HTMLParser):
    """Rows of the summary table, and tags that were opened but not closed."""

    VOID = ("meta", "input", "line", "path", "rect", "circle", "polyline", "polygon", "image")

    def __init__(self):
        super().__init__()
        self.open, self.rows, self.scripts = [], [], 0

    def handle_starttag(self, tag, attributes):
        self.scripts += tag == "script"
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th") and self.rows:
            self.rows[-1].append("")
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        if tag not in self.VOID:
            assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.rows and self.rows[-1] and "tr" in self.open:
            self.rows[-1][-1] += data


def test_every_run_has_a_row_whatever_its_state(text):
    reader = Reader()
    reader.feed(text)
    assert reader.open == []
    rows = {row[0] + row[2]: row for row in reader.rows[1:8]}
    assert rows["FedAvg"][1] == "finished" and rows["FedAvg"][9] == "90.00"
    assert rows["MOON"][1] == "running" and rows["MOON"][7] == "2 of 6"
    assert rows["FedMR"][1] == "failed"
    assert rows["g"][1] == "failed"
    assert "FedLClam=0.1" in rows and "FedLClam=0.2" in rows


def test_names_are_escaped_and_nothing_is_loaded(text):
    reader = Reader()
    reader.feed(text)
    assert reader.scripts == 1
    assert "alert(1)</script>" not in text
    assert "&lt;script&gt;alert(1)" in text
    assert set(re.findall(r"https?://[^\s\"'<]*", text)) == {"http://www.w3.org/2000/svg"}
    assert "default-src 'none'" in text
    assert "unused" not in text


def test_reasons_configuration_and_versions_are_there(text):
    for words in ("not finite", "no data", "hparams.fedlc.lam", "versions.jax", "9.9"):
        assert words in text


def test_an_empty_or_missing_directory_is_one_sentence(tmp_path):
    with pytest.raises(ValueError, match="holds no run"):
        store.find(tmp_path)
    with pytest.raises(ValueError, match="is not a directory"):
        store.find(tmp_path / "nowhere")


def test_damaged_files_count_as_absent(tmp_path):
    path = fake_run(tmp_path / "x", "fedavg", 0.5)
    (path / "summary.json").write_text('{"status": "fin')
    (path / "partition.csv").write_text("1,2\n3\n")
    record = store.read(path)
    assert (record.status, record.rounds_done) == ("stopped", 6)
    (path / "config.json").write_text("[]")
    (path / "metrics.jsonl").write_bytes(b"\xff\xfe")
    assert store.read(path).status == "new"
    assert "No evaluation yet" not in report.page([store.read(path)])


def test_long_curves_are_thinned_and_nan_is_left_out():
    rounds = np.arange(1, 5001)
    mean = np.where(rounds % 7, 50.0, np.nan)
    drawn = svg.curves([svg.Series("k", "n", rounds, mean, None)])
    assert drawn.count(",") < 400
    assert "nan" not in drawn


def test_many_clients_and_classes_make_one_small_picture():
    drawn = svg.heatmap(np.ones((200, 400), int))
    assert drawn.count("<text") < 50
    assert len(drawn) < 20_000


@pytest.fixture(scope="module")
def browse(tmp_path_factory):
    """Opens a page in a real browser after adding a script, and returns what the script wrote."""
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if not chromium:
        pytest.skip("chromium is not installed")
    folder = tmp_path_factory.mktemp("browser")

    def run(text, script):
        page = folder / "page.html"
        end = f"<pre id='result'></pre><script>{script}</script></body>"
        page.write_text(text.replace("</body>", end))
        command = [chromium, "--headless", "--no-sandbox", "--disable-gpu", "--dump-dom"]
        command += [f"--user-data-dir={folder / 'profile'}", page.as_uri()]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
        return json.loads(re.search(r"<pre id=\"result\">(.*?)</pre>", done.stdout, re.S)[1])

    return run


def test_headings_sort_and_boxes_hide_in_a_browser(text, browse):
    script = """
    let alerts = 0; window.alert = () => { alerts++; };
    const table = document.getElementById("summary");
    const column = i => [...table.tBodies[0].rows].map(r => r.cells[i].textContent);
    const click = i => { table.tHead.rows[0].cells[i].querySelector("button").click();
                         return column(i); };
    const result = {best: click(9), again: click(9), method: click(0),
                    sort: table.tHead.rows[0].cells[0].getAttribute("aria-sort")};
    const box = document.querySelector("input[data-toggles=run0]");
    box.click();
    const mark = document.querySelector("[data-series=run0]");
    result.hidden = mark.style.display;
    box.click();
    result.shown = mark.style.display;
    location.hash = "run1"; openTarget();
    result.open = document.getElementById("run1").open;
    result.loaded = performance.getEntriesByType("resource").length;
    result.alerts = alerts;
    document.getElementById("result").textContent = JSON.stringify(result);
    """
    found = browse(text, script)
    numbers = [value for value in found["best"] if value]
    assert numbers == sorted(numbers, key=float, reverse=True)
    assert found["best"][-1] == found["again"][-1] == ""
    assert [v for v in found["again"] if v] == numbers[::-1]
    assert found["method"] == sorted(found["method"], key=str.lower)
    assert found["sort"] == "ascending"
    assert (found["hidden"], found["shown"], found["open"]) == ("none", "", True)
    assert (found["loaded"], found["alerts"]) == (0, 0)
