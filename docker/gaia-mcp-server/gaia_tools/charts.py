"""Charts of Office files as tables of what they show."""

import contextlib
from typing import Any

from gaia_tools.tables import table


def of_part(name: str, source: bytes) -> str:
    from pptx.opc.constants import CONTENT_TYPE
    from pptx.opc.packuri import PackURI
    from pptx.parts.chart import ChartPart

    return table_of(ChartPart.load(PackURI(f"/{name}"), CONTENT_TYPE.DML_CHART, None, source).chart)


def table_of(chart: Any) -> str:
    title = chart.chart_title.text_frame.text if chart.has_title and chart.chart_title.has_text_frame else ""
    parts = [f"Chart ({chart.chart_type.name.lower().replace('_', ' ')}){': ' + title if title else ''}"]
    for plot in chart.plots:
        series = list(plot.series)
        dates = _dates(chart, plot)
        categories = [
            " / ".join([*labels[:-1], dates.get(labels[-1], labels[-1])]) if labels else ""
            for labels in plot.categories.flattened_labels
        ]
        length = max((len(tuple(one.values)) for one in series), default=0)
        labels = categories + [str(n + 1) for n in range(len(categories), length)]
        values = [tuple(one.values) for one in series]
        rows = [["", *(one.name for one in series)]]
        rows += [[label, *(v[i] if i < len(v) else None for v in values)] for i, label in enumerate(labels)]
        parts.append(table(rows))
    return "\n\n".join(parts)


def _dates(chart: Any, plot: Any) -> dict[str, str]:
    """A chart's categories in ISO 8601 where they are dates (days, as in Excel) by their number format, or that of the
    axis.

    An axis of dates without a format is enough, but not with another one: years are on such axes too, as plain numbers.
    """
    if not plot._element.xpath(".//c:cat/c:numRef"):
        return {}
    from openpyxl.styles.numbers import is_date_format
    from openpyxl.utils.datetime import MAC_EPOCH, WINDOWS_EPOCH, from_excel

    space = chart._chartSpace
    codes = plot._element.xpath(".//c:cat//c:formatCode/text() | .//c:cat//c:pt/@formatCode")
    codes += space.xpath(
        ".//c:dateAx/c:numFmt/@formatCode | .//c:catAx/c:numFmt[@sourceLinked='0']/@formatCode"
    )
    if not any(map(is_date_format, codes)) and (codes or not space.xpath(".//c:dateAx")):
        return {}
    epoch = MAC_EPOCH if space.xpath("./c:date1904[not(@val) or @val='1' or @val='true']") else WINDOWS_EPOCH
    found = {}
    for label in {labels[-1] for labels in plot.categories.flattened_labels if labels}:
        with contextlib.suppress(ValueError, OverflowError, TypeError):
            found[label] = from_excel(float(label), epoch).isoformat().removesuffix("T00:00:00")
    return found
