"""The report page, without and (where there is one) with a browser."""

import fcntl
import html.parser
import json
import re
import shutil
import subprocess
import sys

import numpy as np
import pytest

from fedjax_skew.report import bars, style
from fedjax_skew.report import page as report
from fedjax_skew.report.problems import problems
from fedjax_skew.runs import rundir, store

EVIL = "<script>alert(1)</script>\"'&"


def fake_run(path, method, accuracy, *, rounds=6, done=6, seeds=2, failure="", **fields):
    """A run directory as training writes it."""
    path.mkdir(parents=True)
    config = {
        "method": method,
        "dataset": {"name": "mnist", "data_dir": "/somewhere"},
        "hparams": {method: {"tau": 0.1} if method == "fedlc" else {}, "unused": {"lam": 3}},
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
            line |= {"bytes_down": [2_000_000 * r] * seeds, "bytes_up": [1_000_000 * r] * seeds}
            f.write(json.dumps(line) + "\n")
        if done < rounds:
            f.write('{"round": 99, "accur')
    if failure:
        (path / "failure.json").write_text(json.dumps({"reason": failure}))
    if done == rounds:
        summary = {"status": "finished", "rounds": rounds, "versions": {"jax": "9.9"}}
        (path / "summary.json").write_text(json.dumps(summary))
        rundir.write_clients(path, clients(accuracy, seeds))
    return path


def clients(accuracy, seeds, own=np.nan):
    """Twenty clients per seed, of which two are served badly."""
    served = np.tile([0.1, 0.2, *[accuracy] * 18], seeds)
    return {
        "seed": np.repeat(np.arange(seeds), 20),
        "global_accuracy": served,
        "own_accuracy": np.full(served.shape, own),
    }


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    root = tmp_path_factory.mktemp("runs")
    fake_run(root / "a", "fedavg", 0.9)
    fake_run(root / "b", "fedlc", 0.5)
    fake_run(root / "c", "fedlc", 0.7, hparams={"fedlc": {"tau": 0.2}})
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
    """Rows of the tables by section, and tags that were opened but not closed."""

    VOID = ("meta", "input", "path", "rect", "use", "image")

    def __init__(self, text):
        super().__init__()
        self.open, self.sections, self.scripts = [], {}, 0
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attributes):
        self.scripts += tag == "script"
        if tag == "section":
            self.rows = self.sections[dict(attributes)["id"]] = []
        if tag == "tr" and "section" in self.open:
            self.rows.append([])
        if tag in ("td", "th") and "section" in self.open:
            self.rows[-1].append("")
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        pass

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if "section" in self.open and {"td", "th"} & set(self.open):
            self.rows[-1][-1] += data.strip()


def table(text, section="problem0"):
    """The rows of a problem's table as dictionaries."""
    head, *rows = Reader(text).sections[section]
    return [dict(zip(head, row, strict=True)) for row in rows if len(row) == len(head)]


def test_every_run_has_a_row_and_the_most_accurate_comes_first(text):
    rows = table(text)
    assert [row["Last"] for row in rows] == ["90.00", "70.00", "50.00", "6.67", "1.67"]
    assert [row["Method"] for row in rows] == ["FedAvg", "FedLC", "FedLC", "MOON", "FedMR"]
    assert [row["Differs in"] for row in rows[1:3]] == ["tau=0.2", "tau=0.1"]
    assert [row["Directory"] for row in rows] == ["a", "c", "b", "e", "f"]
    assert rows[0]["Status"] == "finished" and rows[4]["Status"] == "failed"
    assert table(text, "problem2")[0]["Status"] == "failed"
    assert Reader(text).open == []


def test_megabytes_and_the_worst_decile_are_columns(text, tmp_path):
    first, *_, running, failed = table(text)
    assert (first["Worst decile"], first["Megabytes"]) == ("15.00", "18.0")
    assert (running["Worst decile"], running["Megabytes"]) == ("", "6.00")
    assert failed["Megabytes"] == "3.00"
    path = fake_run(tmp_path / "a", "fedper", 0.9)
    rundir.write_clients(path, clients(0.9, 2, own=0.7))
    assert table(report.page([store.read(path)]))[0]["Worst decile"] == "70.00"


def test_clients_are_shown_as_a_histogram_and_curves_against_megabytes(text):
    for number in (0, 1, 2):
        assert f'id="clients-run{number}"' in text and f'id="clients-run{number}-mark"' in text
    assert 'id="clients-run4"' not in text  # It is running and has no table of clients.
    assert 'id="megabytes-run4"' in text and 'id="round-run4"' in text
    assert "Clients by accuracy" in text and "against megabytes" in text
    assert re.search(r">clients \(%\)<", text)


def test_a_histogram_has_shares_of_the_clients_that_are_known():
    looks = style.looks(["a"])
    options = {"xlabel": "", "ylabel": "", "looks": looks, "width": 4.0}
    figure = bars.histogram({"a": [[5.0, 95.0], [np.nan, 100.0]]}, marks={"a": 5.0}, **options)
    ground, outline = figure.axes[0].patches
    np.testing.assert_allclose(outline.get_data().values, [100 / 3, *[0] * 8, 200 / 3])
    assert ground.get_gid() == "a-band" and outline.get_gid() == "a"
    (mark,) = figure.axes[0].lines
    assert mark.get_xdata() == [5.0]
    many = bars.histogram({"a": np.linspace(0, 100, 300)}, marks={}, **options)
    assert len(many.axes[0].patches[1].get_data().values) == 20


@pytest.mark.parametrize("damage", ["seed,own_accuracy\n0,1\n", "", "seed\n", "a,b\n1\n"])
def test_a_damaged_table_of_clients_is_left_out(tmp_path, damage):
    path = fake_run(tmp_path / "a", "fedavg", 0.9)
    (path / rundir.CLIENTS).write_text(damage)
    text = report.page([store.read(path)])
    assert "Clients by accuracy" not in text and "Worst decile" not in table(text)[0]


def test_a_running_run_says_how_far_it_is(text):
    (row,) = [row for row in table(text) if row["Method"] == "MOON"]
    assert row["Status"] == "running, 2 of 6, about 8 s left"


def test_only_fields_that_change_results_distinguish_runs(tmp_path):
    fake_run(tmp_path / "a", "fedavg", 0.9, loggers="csv", eval_batch_size=7, client_lr=0.5)
    fake_run(tmp_path / "b", "fedavg", 0.8, loggers="", client_lr=0.01)
    fake_run(tmp_path / "c", "fedavg", 0.7)  # The default of client_lr is 0.01.
    (problem,) = problems(store.find(tmp_path))
    assert [run.differs for run in problem.runs] == ["client_lr=0.5", "", ""]


@pytest.mark.parametrize(
    "change",
    [
        {"dataset": {"name": "npz", "path": "other.npz"}},
        {"partition": "dirichlet(beta=0.5)"},
        {"server_data": {"labelled": 0.1}},
        {"partition_hash": ["ff", "bb"]},
        {"data_hash": "ff"},
    ],
)
def test_runs_on_different_data_share_nothing(tmp_path, change):
    hashes = {"seeds": [0, 1], "partition_hash": ["aa", "bb"], "data_hash": "cc"}
    for name, other in (("a", {}), ("b", change), ("c", {})):
        fields = {k: v for k, v in other.items() if k not in hashes}
        path = fake_run(tmp_path / name, "fedavg", 0.9, **fields)
        found = json.loads((path / "summary.json").read_text())
        (path / "summary.json").write_text(json.dumps({**found, **hashes, **other}))
    fake_run(tmp_path / "d", "fedlc", 0.9, done=2)  # It recorded nothing yet.
    found = problems(store.find(tmp_path))
    assert [[run.directory for run in problem.runs] for problem in found] == [
        ["a", "c", "d"],
        ["b"],
    ]
    assert found[0].title != found[1].title


def test_a_new_column_is_one_declaration(tmp_path, monkeypatch):
    fake_run(tmp_path / "a", "fedavg", 0.9)
    new = report.Column("Evaluations", lambda run: str(len(run.record.lines)))
    empty = report.Column("Nothing", lambda run: "")
    monkeypatch.setattr(report, "COLUMNS", (*report.COLUMNS, new, empty))
    (row,) = table(report.page(store.find(tmp_path)))
    assert row["Evaluations"] == "6" and "Nothing" not in row


def test_captions_name_what_is_drawn(text):
    assert "in the partition of seed 0." in text
    assert "Test accuracy by class at the last evaluation" in text


def test_names_are_escaped_and_nothing_is_loaded(text):
    assert Reader(text).scripts == 1
    assert "alert(1)</script>" not in text
    assert "&lt;script&gt;alert(1)" in text
    assert {link[:18] for link in re.findall(r"https?://[^\s\"'<]*", text)} == {
        "http://www.w3.org/"
    }
    assert "default-src 'none'" in text
    assert "unused" not in text


def test_reasons_configuration_and_versions_are_there(text):
    for words in ("not finite", "no data", "hparams.fedlc.tau", "versions.jax", "9.9"):
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


def test_long_curves_and_many_clients_make_a_small_page(tmp_path):
    path = fake_run(tmp_path / "x", "fedavg", 0.5, rounds=4000, done=4000, seeds=1)
    (path / "partition.csv").write_text(f"{','.join(['1'] * 2000)}\n" * 50)
    text = report.page([store.read(path)])
    assert len(text) < 200_000
    assert "400 of 2,000 clients" in text


def test_without_jinja_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "jinja2", None)
    with pytest.raises(ImportError, match=r"jinja2 .*fedjax_skew\[report\]"):
        report.page([])


@pytest.fixture(scope="module")
def browse(tmp_path_factory):
    """Opens a page in a real browser after adding a script, and returns what the script wrote."""
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if not chromium:
        pytest.skip("chromium is not installed")
    folder = tmp_path_factory.mktemp("browser")

    def run(text, script, width):
        page = folder / "page.html"
        end = f"<pre id='result'></pre><script>{script}</script></body>"
        page.write_text(text.replace("</body>", end))
        command = [chromium, "--headless", "--no-sandbox", "--disable-gpu", "--dump-dom"]
        command += [f"--user-data-dir={folder / 'profile'}", f"--window-size={width},900"]
        command += [page.as_uri()]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
        return json.loads(re.search(r"<pre id=\"result\">(.*?)</pre>", done.stdout, re.S)[1])

    return run


@pytest.mark.parametrize("width", [1400, 420])
def test_headings_sort_boxes_hide_and_the_page_fits_in_a_browser(text, browse, width):
    script = """
    let alerts = 0; window.alert = () => { alerts++; };
    const table = document.querySelector("table.sortable");
    const column = i => [...table.tBodies[0].rows].map(r => r.cells[i].textContent);
    const click = i => { table.tHead.rows[0].cells[i].querySelector("button").click();
                         return column(i); };
    const result = {best: click(3), again: click(3), method: click(0),
                    sort: table.tHead.rows[0].cells[0].getAttribute("aria-sort")};
    const box = document.querySelector("input[data-toggles=run0]");
    const marks = ["round", "megabytes", "clients"].flatMap(kind =>
      ["", "-band", "-mark"].map(end => document.getElementById(`${kind}-run0${end}`)));
    result.styles = () => [...new Set(marks.filter(mark => mark).map(mark => mark.style.display))];
    result.marks = marks.filter(mark => mark).length;
    box.click();
    result.hidden = result.styles();
    box.click();
    result.shown = result.styles();
    location.hash = "run1"; openTarget();
    result.open = document.getElementById("run1").open;
    document.documentElement.style.width = "WIDTHpx";  // Windows have at least 500 pixels.
    result.width = document.body.scrollWidth;
    result.loaded = performance.getEntriesByType("resource").length;
    result.alerts = alerts;
    document.getElementById("result").textContent = JSON.stringify(result);
    """
    found = browse(text, script.replace("WIDTH", str(width)), width)
    numbers = [value for value in found["best"] if value]
    assert numbers == sorted(numbers, key=float, reverse=True)
    assert found["best"][0] == "90.00"
    assert [v for v in found["again"] if v] == numbers[::-1]
    assert found["method"] == sorted(found["method"], key=str.lower)
    assert found["sort"] == "ascending"
    assert (found["hidden"], found["shown"], found["open"]) == (["none"], [""], True)
    assert found["marks"] == 7
    assert found["width"] <= width
    assert (found["loaded"], found["alerts"]) == (0, 0)
