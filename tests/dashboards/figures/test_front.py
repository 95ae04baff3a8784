"""Figures of 100,000 trials: what a browser gets does not grow with the study, and the front in it is exact."""

from __future__ import annotations

import numpy as np
import pytest

from dashboards.analysis.tabulated import Tabulated
from dashboards.figures.figure import Axis, Figure, Series
from dashboards.figures.front import front_figure
from dashboards.figures.plotly import plotly
from dashboards.figures.progress import history_figure, hypervolume_figure
from dashboards.figures.svg import DENSE, svg
from dashboards.server.answers import as_json

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
    assert len(as_json(plotly(figure))) < 200_000
    assert len(svg(figure)) < 350_000


@pytest.mark.parametrize("count", [DENSE, DENSE + 1])
def test_very_many_points_are_one_element_of_the_picture(count):
    known = list(range(1, count + 1))
    series = Series(name="all", x=known, y=[*known[:-1], None], text=["point"] * count, links=["/"] * count)
    picture = svg(Figure(title="", x=Axis(label="x"), y=Axis(label="y", log=True), series=[series]))

    drawn = (0, 1, count - 1) if count > DENSE else (count - 1, 0, 0)
    assert tuple(picture.count(each) for each in ("<title>", 'stroke-linecap="round"', "h0")) == drawn


@pytest.mark.parametrize("symbol", ["circle", "triangle"])
def test_very_many_points_in_colours_are_one_element_for_each(symbol):
    known = list(range(DENSE + 1))
    series = Series(name="all", x=known, y=known, shade=known, links=["/"] * len(known), symbol=symbol)
    few = Series(name="few", x=[1], y=[1], shade=[DENSE], symbol=symbol)
    figure = Figure(title="", x=Axis(label="x"), y=Axis(label="y"), series=[series, few])
    picture, (many, one) = svg(figure), plotly(figure)["data"]

    assert picture.count("<path") < 40 and picture.count(' s7"') == 2, "both series share the darkest colour"
    assert [each["marker"]["cmax"] for each in (many, one)] == [DENSE, DENSE]
    assert [each["marker"]["showscale"] for each in (many, one)] == [True, False]
    assert [each["marker"].get("maxdisplayed") for each in (many, one)] == [1, None]


@pytest.mark.parametrize("mark", ["line", "steps"])
def test_a_line_of_one_point_is_a_mark_with_its_interval(mark):
    one = Series(name="rung 0", x=[5], y=[0.9], low=[0.8], high=[1.0], mark=mark)
    figure = Figure(title="", x=Axis(label="x"), y=Axis(label="y"), series=[one])
    (trace,) = plotly(figure)["data"]

    assert trace["mode"] == "markers"
    assert trace["error_y"]["array"] == pytest.approx([0.1])
    assert 'class="whisker' in svg(figure) and 'class="mark' in svg(figure)


def test_a_zoom_into_a_large_study_draws_the_trials_in_it(table):
    flops = np.sort(table.values["flops"][table.longest])[1000:1400]
    figure = front_figure(
        table, "flops", "bits_per_byte", address="", bounds=((float(flops[0]), float(flops[-1])), None)
    )
    drawn = [x for each in figure.series if each.name and each.name != "Trained for fewer steps" for x in each.x]

    assert sorted(drawn) == flops.tolist()


def test_histories_of_a_large_study_have_few_points(table):
    figures = [history_figure(table, "bits_per_byte"), hypervolume_figure(table, ["bits_per_byte", "flops"])]

    assert all(len(series.x) < 500 for figure in figures for series in figure.series)
