"""Figures from small fake data: what is drawn, labelled and written, without looking."""

import subprocess
import sys
import xml.etree.ElementTree

import numpy as np
import pytest

from fedjax_skew.metrics import skew
from fedjax_skew.report import bars, heatmaps, lines, style

pytest.importorskip("matplotlib")


def rng():
    return np.random.default_rng(0)


def texts(axis):
    return [text.get_text() for text in axis.texts]


def legend_names(figure):
    return [text.get_text() for legend in figure.legends for text in legend.get_texts()]


def test_looks_differ_even_without_colour():
    looks = [style.look(index) for index in range(13)]
    assert len({look.marker for look in looks}) == 13
    for index, look in enumerate(looks):
        twins = [other for other in looks[index + 1 :] if other.color == look.color]
        assert all(other.line != look.line and other.hatch != look.hatch for other in twins)


def test_partition_shows_counts_of_few_clients_and_leaves_vacant_cells_white():
    counts = np.array([[5, 0, 1], [0, 7, 0]])
    figure = heatmaps.partitions({"two clients": counts})
    figure.draw_without_rendering()
    axis = figure.axes[0]
    assert sorted(texts(axis)) == ["1", "5", "7"]
    np.testing.assert_array_equal(np.ma.getmaskarray(axis.images[0].get_array()), counts.T == 0)
    assert (axis.get_xlabel(), axis.get_ylabel(), axis.get_title()) == (
        "client",
        "class",
        "two clients",
    )
    assert [label.get_text() for label in axis.get_yticklabels()] == ["0", "1", "2"]
    low, high = axis.get_ylim()
    assert low < high, "class 0 is the lowest row"


def test_partition_of_many_clients_shows_some_and_says_so():
    counts = rng().integers(0, 9, (5000, 10))
    axis = heatmaps.partitions({"": counts}).axes[0]
    assert axis.images[0].get_array().shape == (10, 400)
    assert "400 of 5,000 clients" in axis.get_xlabel()
    assert not texts(axis)


def test_partitions_side_by_side_share_one_scale():
    figure = heatmaps.partitions({"a": np.full((3, 4), 2), "b": np.full((3, 4), 50)})
    figure.draw_without_rendering()
    limits = {axis.images[0].norm.vmax for axis in figure.axes[:2]}
    assert limits == {50}


def test_confusion_matrix_is_in_percent_of_true_classes_and_marks_roles():
    roles = skew.class_roles(np.array([90, 10, 0]))
    figure = heatmaps.confusion([[8, 2, 0], [1, 1, 2], [0, 0, 0]], roles=roles)
    figure.draw_without_rendering()
    axis = figure.axes[0]
    assert sorted(texts(axis)) == sorted(["80", "20", "25", "25", "50"])
    names = [label.get_text() for label in axis.get_yticklabels()]
    assert names == ["0", "1 (minority)", "2 (vacant)"]


def test_a_grid_writes_its_numbers_and_leaves_unknown_cells_empty():
    values = [[12.34, np.nan], [50.0, 100.0]]
    figure = heatmaps.grid(
        values,
        xlabel="class",
        ylabel="run",
        label="accuracy (%)",
        x_names=("0", "1"),
        y_names=("FedAvg", "FedLC"),
        decimals=1,
    )
    figure.draw_without_rendering()
    axis, scale = figure.axes
    assert sorted(texts(axis)) == ["100.0", "12.3", "50.0"]
    assert [label.get_text() for label in axis.get_yticklabels()] == ["FedAvg", "FedLC"]
    assert scale.get_ylabel() == "accuracy (%)" and len(scale.get_yticks()) > 2


def test_rounds_have_ticks_at_whole_numbers():
    few = {"a": (np.arange(1, 4), np.arange(3.0))}
    half = {"a": (np.arange(1, 4) / 2, np.arange(3.0))}
    one = {"a": (np.array([3]), np.ones(1))}
    ticks = [lines.curves({"": panel}).axes[0].get_xticks() for panel in (few, one, half)]
    assert all(tick == int(tick) for tick in (*ticks[0], *ticks[1]))
    assert any(tick != int(tick) for tick in ticks[2])


def test_svg_scales_names_its_curves_and_escapes_what_it_is_told():
    evil = '<script>$x^</script>"&'
    series = {"a": (np.arange(5), np.ones((2, 5))), evil: (np.arange(5), np.ones(5))}
    text = style.svg(lines.curves({evil: series}), evil)
    root = xml.etree.ElementTree.fromstring(text)
    assert root.get("aria-label") == evil
    assert root.get("viewBox") and root.get("width") is None
    ids = [element.get("id") for element in root.iter() if element.get("id")]
    assert {"a", "a-band", evil} <= set(ids) and len(set(ids)) == len(ids)
    assert "<script>" not in text and evil in [element.text for element in root.iter()]
    assert text == style.svg(lines.curves({evil: series}), evil)


def test_a_swatch_has_the_look_of_its_curve():
    text = style.svg(lines.swatch(style.look(1)), "")
    assert style.COLORS[1].lower() in text and "stroke-dasharray" in text


def test_without_matplotlib_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ImportError, match=r"matplotlib .*fedjax_skew\[report\]"):
        bars.grouped_bars(["x"], {"a": [1]})


def test_curves_draw_the_mean_and_a_band_over_seeds():
    rounds, values = np.arange(1, 21), rng().normal(size=(3, 20))
    figure = lines.curves({"one": {"FedAvg": (rounds, values), "FedLC": (rounds, values[0])}})
    figure.draw_without_rendering()
    axis = figure.axes[0]
    np.testing.assert_allclose(axis.lines[0].get_ydata(), values.mean(0))
    assert len(axis.collections) == 1
    band = axis.collections[0].get_paths()[0].vertices[:, 1]
    assert band.max() == pytest.approx((values.mean(0) + values.std(0, ddof=1)).max())
    assert legend_names(figure) == ["FedAvg", "FedLC"]


def test_method_keeps_its_look_in_all_panels():
    curve = (np.arange(3), np.arange(3))
    figure = lines.curves({"1": {"a": curve, "b": curve}, "2": {"b": curve}, "3": {"c": curve}})
    first, second, third = figure.axes[:3]
    assert first.lines[1].get_color() == second.lines[0].get_color()
    assert third.lines[0].get_color() not in {line.get_color() for line in first.lines}
    assert legend_names(figure) == ["a", "b", "c"]
    assert [axis.get_ylabel() != "" for axis in (first, second, third)] == [True, False, True]


def test_class_bars_have_counts_beside_and_ground_under_vacant_classes():
    panel = bars.ClassBars("client 0", {"before": [10, 20, 30], "after": [5, 0, 60]}, [0, 3, 90])
    figure = bars.class_bars([panel])
    figure.draw_without_rendering()
    axis, twin = figure.axes
    assert len(axis.containers) == 2
    np.testing.assert_array_equal(twin.lines[0].get_xydata(), [[1, 3], [2, 90]])
    assert legend_names(figure) == ["before", "after", "training samples", "no training samples"]
    assert axis.get_ylim() == (0, 100)


def test_class_bars_without_counts_have_one_axis():
    figure = bars.class_bars([bars.ClassBars("x", {"FedAvg": [1, 2], "FedLC": [3, 4]})])
    assert len(figure.axes) == 1


def test_grouped_bars_have_error_bars_over_seeds_only():
    figure = bars.grouped_bars(["IID", "skewed"], {"a": [[70, 72], [50, 54]], "b": [60, 40]})
    figure.draw_without_rendering()
    axis = figure.axes[0]
    heights = [bar.get_height() for bar in axis.containers[1]]
    assert heights == [71, 52]
    assert [label.get_text() for label in axis.get_xticklabels()] == ["IID", "skewed"]
    with pytest.raises(ValueError, match="'b' has 1 values; 2"):
        bars.grouped_bars(["IID", "skewed"], {"b": [1]})


def test_sensitivity_ticks_stand_at_the_tried_values():
    series = {"FedLF": ([1e-3, 1e-2, 1e-1], rng().normal(70, 1, (3, 4)))}
    figure = lines.sensitivity({"lambda": series}, log=True)
    figure.draw_without_rendering()
    axis = figure.axes[0]
    assert axis.get_xscale() == "log"
    assert [label.get_text() for label in axis.get_xticklabels()] == ["0.001", "0.01", "0.1"]
    assert not figure.legends


def test_scatter_of_tsne_points():
    labels = np.repeat([0, 1, 4], 8)
    features = 10 * np.eye(5)[labels] + rng().normal(size=(24, 5))
    points = lines.tsne(features, seed=1)  # fewer points than the default perplexity
    assert points.shape == (24, 2)
    np.testing.assert_array_equal(points, lines.tsne(features, seed=1))
    names = ("a", "b", "c", "d", "e")
    figure = lines.scatter({"FedAvg": (points, labels)}, class_names=names)
    figure.draw_without_rendering()
    assert legend_names(figure) == ["a", "b", "e"]


def test_saved_files_are_the_same_bytes_every_time(tmp_path):
    def draw():
        series = {"a": (np.arange(5), np.arange(5)), "b": (np.arange(5), np.ones(5))}
        return lines.curves({"title": series})

    first = style.save(draw(), tmp_path / "new" / "fig_1.5")
    second = style.save(draw(), tmp_path / "again")
    assert [path.name for path in first] == ["fig_1.5.png", "fig_1.5.pdf"]
    assert [p.read_bytes() for p in first] == [p.read_bytes() for p in second]
    assert b"CreationDate" not in first[1].read_bytes()


def test_users_settings_neither_leak_in_nor_out():
    import matplotlib

    with matplotlib.rc_context({"axes.titlesize": 33, "font.size": 21}):
        figure = bars.grouped_bars(["x"], {"a": [1]}, xlabel="t")
        assert figure.axes[0].xaxis.label.get_fontsize() == 9
        assert matplotlib.rcParams["font.size"] == 21


def test_no_panels_is_a_clear_error():
    with pytest.raises(ValueError, match="at least one"):
        lines.curves({})


def test_importing_the_figures_does_not_import_matplotlib():
    code = (
        "import sys; from fedjax_skew.report import bars, heatmaps, lines, render, style; "
        "assert not {'matplotlib', 'sklearn', 'pandas'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_bar_panels_keep_a_look_by_name_and_show_seeds():
    figure = bars.bar_panels({"a (%)": {"x": [1.0, 3.0], "y": [4.0, 4.0]}, "b": {"y": [7.0]}})
    figure.draw_without_rendering()
    first, second = figure.axes
    assert [bar.get_height() for bar in first.patches] == [2.0, 4.0]
    assert first.patches[1].get_facecolor() == second.patches[0].get_facecolor()
    assert (first.get_ylabel(), second.get_ylabel()) == ("a (%)", "b")
    assert [label.get_text() for label in first.get_xticklabels()] == ["x", "y"]


def test_a_caption_stays_inside_the_figure():
    figure = bars.grouped_bars(["x"], {"a": [1]})
    style.caption(figure, "dataset.name: mnist instead of cifar10. " * 8)
    figure.draw_without_rendering()
    box = figure._supxlabel.get_window_extent()
    assert box.x0 >= 0 and box.x1 <= figure.bbox.x1 and "\n" in figure.get_supxlabel()


def test_scatter_names_classes_by_number():
    panels = {"FedLC": (rng().normal(size=(4, 2)), np.array([2, 2, 7, 7]))}
    figure = lines.scatter(panels, class_names={2: "rare", 7: "frequent"}, label="class")
    assert legend_names(figure) == ["rare", "frequent"]
    assert figure.legends[0].get_title().get_text() == "class"
