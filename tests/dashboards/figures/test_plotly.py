"""What Plotly is told of a figure."""

from dashboards.figures.figure import Axis, Figure, Series
from dashboards.figures.plotly import plotly


def markers(*shades):
    """Those of a figure with one series for each of these shades."""
    series = [Series(name=str(shade), x=(1.0, 2.0), y=(1.0, 2.0), shade=shade) for shade in shades]
    return [
        trace["marker"]
        for trace in plotly(Figure(title="a", x=Axis(label="x"), y=Axis(label="y"), series=series))["data"]
    ]


def test_all_series_share_one_scale_of_colours_and_one_bar_shows_it():
    found = markers((3.0, None), (1.0, 9.0))
    assert [(each["cmin"], each["cmax"], each["showscale"]) for each in found] == [(1.0, 9.0, True), (1.0, 9.0, False)]


def test_a_figure_may_have_no_number_to_colour_by():
    assert [each["color"] for each in markers((None, None))] == [[None, None]]
