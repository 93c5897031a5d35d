"""Charts as SVG text, made from records alone: one question a file."""

from uncone.report.charts.bins import bin_charts
from uncone.report.charts.cone import cone_charts, legends
from uncone.report.charts.frame import Chart
from uncone.report.charts.norms import norms_chart
from uncone.report.charts.spectrum import spectrum_chart

__all__ = ["Chart", "bin_charts", "cone_charts", "legends", "norms_chart", "spectrum_chart"]
