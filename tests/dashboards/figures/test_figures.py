"""Figures: of 100,000 trials a browser gets few points, with the exact front; and what a picture contains."""

from __future__ import annotations

from xml.etree import ElementTree

import numpy as np
import pytest

from dashboards.analysis.tabulated import Tabulated
from dashboards.figures.figure import Axis, Figure, Series
from dashboards.figures.front import front_figure
from dashboards.figures.progress import history_figure, hypervolume_figure
from dashboards.figures.svg import svg

TRIALS = 100_000


@pytest.fixture(scope="module")
def table():
    generator = np.random.default_rng(0)
    flops = np.exp(generator.normal(20, 1, TRIALS))
    bits = 3 - 0.1 * np.log(flops / 1e8) + generator.gamma(2, 0.1, TRIALS)
    texts = {"state": "complete", "purpose": "search", "operator": "model", "error_kind": None, "hash": "0" * 12}
    words = {name: np.full(TRIALS, value, dtype=object) for name, value in texts.items()}
    arms = np.where(np.arange(TRIALS) % 4 == 0, "control-random", "main").astype(object)
    numbers = np.arange(TRIALS)
    return Tabulated(
        number=numbers,
        rung=np.zeros(TRIALS, dtype=np.int64),
        steps=np.where(generator.random(TRIALS) < 0.3, 300, 100),
        sequence=numbers + 1,
        texts=words | {"arm": arms},
        numbers={name: numbers.astype(float) for name in ("parameters", "step_flops", "created_at", "finished_at")},
        values={"bits_per_byte": bits, "flops": flops},
        seconds=np.full(TRIALS, 4.0),
        signs={"bits_per_byte": 1, "flops": 1},
    )


def test_the_pareto_front_of_a_large_study_is_exact_and_small(table):
    figure = front_figure(table, "flops", "bits_per_byte", address="/studies/a/b")
    (drawn,) = (each for each in figure.series if each.name == "Pareto front")
    exact = table.front(["flops", "bits_per_byte"])

    assert sorted(drawn.x) == sorted(table.values["flops"][exact].tolist())
    assert len(svg(figure)) < 800_000


def picture(*series, **axis):
    return svg(Figure(title="", x=Axis(label="x", **axis), y=Axis(label="y"), series=series))


def test_every_point_has_its_link_and_its_label():
    known = list(range(1, 5))
    series = Series(name="all", x=known, y=[*known[:-1], None], text=["point"] * 4, links=["/"] * 4)

    assert [picture(series).count(each) for each in ("<title>point", "<a href", "<circle")] == [3, 3, 3]
    assert 'role="group"' in picture(series)


def test_all_series_share_one_scale_of_colours_and_its_ends_are_written():
    known = list(range(80))
    many = Series(name="many", x=known, y=known, shade=known, shade_label="FLOPs")
    one = Series(name="one", x=[1], y=[1], shade=[79], symbol="square")
    drawn = picture(many, one)

    assert [drawn.count(f'class="mark s{step}"') for step in (0, 7)] == [11, 10]
    assert ">FLOPs 0</text>" in drawn and ">79</text>" in drawn
    assert "mark c0" in picture(Series(name="none", x=[1], y=[1], shade=[None]))


@pytest.mark.parametrize("mark", ["line", "steps"])
def test_a_line_of_one_point_is_a_mark_with_its_interval(mark):
    one = Series(name="rung 0", x=[5], y=[0.9], low=[0.8], high=[1.0], mark=mark)

    assert 'class="whisker' in picture(one) and 'class="mark' in picture(one)


def test_a_zoom_cuts_a_line_at_the_ends_of_the_axes():
    line = Series(name="line", x=[0, 10], y=[0, 10], mark="line")
    whole, part = picture(line), picture(line, bounds=(4.0, 6.0))

    assert whole.count("<svg") == 1 and part.count("<svg") == 2, "an inner picture hides the rest"
    assert 'data-x="4 6 64 704"' in part and 'class="line' in part.partition("<svg")[2].partition("<svg")[2]


@pytest.mark.parametrize("symbol", ["circle", "square", "diamond", "triangle", "star"])
def test_a_picture_in_a_file_is_valid_and_has_its_colours(symbol):
    series = Series(name="a < b", x=[1, 2], y=[1e-300, 1e300], symbol=symbol, text=["\x01&", "</svg>"])
    figure = Figure(title='"', x=Axis(label="x", log=True), y=Axis(label="y", log=True), series=[series])

    root = ElementTree.fromstring(svg(figure, alone=True))
    assert ".c0{" in root[0].text and root.get("viewBox") == "0 0 720 380"


def test_a_zoom_into_a_large_study_draws_the_trials_in_it(table):
    flops = np.sort(table.values["flops"][table.longest])[1000:1400]
    figure = front_figure(
        table, "flops", "bits_per_byte", address="", zoom=(float(flops[0]), float(flops[-1]), 0.0, 9.0)
    )
    drawn = [x for each in figure.series if each.name and each.name != "Trained for fewer steps" for x in each.x]

    assert sorted(drawn) == flops.tolist()


def test_histories_of_a_large_study_have_few_points(table):
    figures = [history_figure(table, "bits_per_byte"), hypervolume_figure(table, ["bits_per_byte", "flops"])]

    assert all(len(series.x) < 500 for figure in figures for series in figure.series)
