"""The fields of a PDF form and what was filled in, by PDFium. To be called in a process of its own.

A field's name often says nothing, such as "Text3", so the words beside it on the page are given with it.
"""

import ctypes
import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pypdfium2 import PdfDocument, PdfPage, PdfTextPage

MAX_FIELDS = 400
_MAX_VALUE_CHARS = 4000
_MAX_LABEL_CHARS = 300
_MAX_OPTIONS = 30
_LABEL_POINTS = 250.0  # how far from a field its label may begin
_OVERLAP_POINTS = 2.0  # of a field and the first letter beside it
_MIN_ROW_POINTS = 10.0  # fields may be drawn as thin lines, with their label beside them
HIDDEN = 0b100010  # annotation flags Hidden and NoView (ISO 32000-1, table 165)
_PUSH_BUTTON, _CHECKBOX, _RADIO, _COMBO, _LIST, _TEXT, _SIGNATURE = range(
    1, 8
)  # FPDF_FORMFIELD_* of fpdf_formfill.h
_KINDS = {
    _CHECKBOX: "checkbox",
    _RADIO: "radio buttons",
    _COMBO: "choice",
    _LIST: "list",
    _TEXT: "text",
    _SIGNATURE: "signature",
}

Box = tuple[float, float, float, float]
"""Left, bottom, right and top in points, from the page's lower left corner."""


@dataclass(frozen=True)
class FormField:
    """A field on one page; ``label`` is its tooltip, or else the words beside it.

    ``kind`` is ``text``, ``checkbox``, ``radio buttons``, ``choice``, ``list`` or ``signature``; ``value`` what is
    filled in, chosen or ticked (``on``, ``off``).
    """

    name: str
    label: str
    kind: str
    value: str
    options: tuple[str, ...] = ()
    hidden: bool = False


@dataclass(frozen=True)
class _Widget:
    kind: int
    name: str
    tooltip: str
    value: str
    option: str
    is_checked: bool
    options: tuple[str, ...]
    hidden: bool
    box: Box


def has_form(pdf: "PdfDocument") -> bool:
    """Whether a file has a form, and PDFium is ready to read and to draw it: to be called before a page is loaded."""
    import pypdfium2.raw as pdfium

    if pdf.get_formtype() == pdfium.FORMTYPE_NONE:
        return False
    # It says of every XFA form that PDFium cannot run it; its fields are read all the same.
    logging.getLogger("pypdfium2").setLevel(logging.ERROR)
    pdf.init_forms()
    return pdf.formenv is not None


def form_fields(page: "PdfPage") -> list[FormField]:
    if page.formenv is None:
        return []
    widgets = sorted(_widgets(page), key=lambda one: (-round(one.box[3] / _MIN_ROW_POINTS), one.box[0]))
    text_page = page.get_textpage()
    try:
        fields: dict[tuple[int, str, int], list[_Widget]] = {}
        for number, widget in enumerate(widgets):
            # One field may be on a page several times; only radio buttons are then a choice between these places.
            place = 0 if widget.kind == _RADIO else number
            fields.setdefault((widget.kind, widget.name, place), []).append(widget)
        return [_field(parts, widgets, text_page) for parts in fields.values()]
    finally:
        text_page.close()


def listed(fields: list[FormField]) -> str:
    return "\n".join(map(_line, fields))


def _line(field: FormField) -> str:
    label = "" if field.label.rstrip(":* ").casefold() == field.name.casefold() else field.label
    about = ", ".join(filter(None, [field.kind, "hidden" if field.hidden else ""]))
    value = field.value or ("none chosen" if field.options else "(empty)")
    if field.kind == "signature" and not field.value:
        value = "not signed"
    options = f" [of: {'; '.join(field.options)}]" if field.options else ""
    name = f"{field.name} ({label})" if label and field.name else field.name or label or "without a name"
    return f"- {name}, {about}: {value}{options}"


def _widgets(page: "PdfPage") -> list[_Widget]:
    import pypdfium2.raw as pdfium

    widgets = (
        _widget(page.formenv, annotation)
        for annotation in annotations(page)
        if pdfium.FPDFAnnot_GetSubtype(annotation) == pdfium.FPDF_ANNOT_WIDGET
    )
    return list(islice((widget for widget in widgets if widget.kind in _KINDS), MAX_FIELDS))


def annotations(page: "PdfPage") -> Iterator[Any]:
    import pypdfium2.raw as pdfium

    for number in range(pdfium.FPDFPage_GetAnnotCount(page)):
        annotation = pdfium.FPDFPage_GetAnnot(page, number)
        if not annotation:
            continue
        try:
            yield annotation
        finally:
            pdfium.FPDFPage_CloseAnnot(annotation)


def _widget(form: Any, annotation: Any) -> _Widget:
    import pypdfium2.raw as pdfium

    kind = pdfium.FPDFAnnot_GetFormFieldType(form, annotation)
    value = string(pdfium.FPDFAnnot_GetFormFieldValue, form, annotation)
    options: tuple[str, ...] = ()
    if kind in (_COMBO, _LIST):
        numbers = range(max(pdfium.FPDFAnnot_GetOptionCount(form, annotation), 0))
        labels = {n: string(pdfium.FPDFAnnot_GetOptionLabel, form, annotation, n) for n in numbers}
        selected = [labels[n] for n in numbers if pdfium.FPDFAnnot_IsOptionSelected(form, annotation, n)]
        value = ", ".join(selected) or value
        options = tuple(labels.values())
    elif kind == _SIGNATURE:
        value = "signed" if pdfium.FPDFAnnot_HasKey(annotation, b"V") else ""
    rectangle = pdfium.FS_RECTF()
    pdfium.FPDFAnnot_GetRect(annotation, rectangle)
    return _Widget(
        kind=kind,
        name=string(pdfium.FPDFAnnot_GetFormFieldName, form, annotation),
        tooltip=string(pdfium.FPDFAnnot_GetFormFieldAlternateName, form, annotation),
        value=value,
        option=string(pdfium.FPDFAnnot_GetFormFieldExportValue, form, annotation),
        is_checked=bool(pdfium.FPDFAnnot_IsChecked(form, annotation)),
        options=options,
        hidden=bool(pdfium.FPDFAnnot_GetFlags(annotation) & HIDDEN),
        box=(rectangle.left, rectangle.bottom, rectangle.right, rectangle.top),
    )


def _field(parts: list[_Widget], widgets: list[_Widget], text_page: "PdfTextPage") -> FormField:
    first = parts[0]
    is_button = first.kind in (_CHECKBOX, _RADIO)
    label, options, value = first.tooltip, first.options, first.value
    if first.kind == _RADIO:
        named = [_option(part, _words_beside(part, widgets, text_page, prefer_right=True)) for part in parts]
        value = ", ".join(name for name, part in zip(named, parts, strict=True) if part.is_checked)
        options = tuple(named)
    else:
        label = label or _words_beside(first, widgets, text_page, prefer_right=is_button)
    if first.kind == _CHECKBOX:
        value = "on" if first.is_checked else "off"
    return FormField(
        name=first.name[:_MAX_LABEL_CHARS],
        label=" ".join(label.split())[:_MAX_LABEL_CHARS],
        kind=_KINDS[first.kind],
        value=value.replace("\r\n", "\n").replace("\r", "\n").strip()[:_MAX_VALUE_CHARS],
        options=_shortened(options),
        hidden=all(part.hidden for part in parts),
    )


def _option(widget: _Widget, label: str) -> str:
    return f"{widget.option} ({label})" if label and label != widget.option else widget.option


def _shortened(options: tuple[str, ...]) -> tuple[str, ...]:
    more = (f"and {len(options) - _MAX_OPTIONS} more",) if len(options) > _MAX_OPTIONS else ()
    return tuple(one[:_MAX_LABEL_CHARS] for one in options[:_MAX_OPTIONS]) + more


def _words_beside(
    widget: _Widget, widgets: list[_Widget], text_page: "PdfTextPage", prefer_right: bool
) -> str:
    left, bottom, right, top = widget.box
    middle, half = (bottom + top) / 2, max(min(top - bottom, 2 * _MIN_ROW_POINTS), _MIN_ROW_POINTS) / 2
    row = [one.box for one in widgets if one.box[1] < middle + half and one.box[3] > middle - half]
    left_end = max([left - _LABEL_POINTS, *(box[2] for box in row if box[2] <= left)])
    right_end = min([right + _LABEL_POINTS, *(box[0] for box in row if box[0] >= right)])
    areas = [
        (left_end, middle - half, left + _OVERLAP_POINTS, middle + half),
        (right - _OVERLAP_POINTS, middle - half, right_end, middle + half),
    ]
    for area in reversed(areas) if prefer_right else areas[:1]:
        if words := " ".join(text_page.get_text_bounded(*area).replace("\0", "").split()):
            return words[:_MAX_LABEL_CHARS] if area is areas[1] else words[-_MAX_LABEL_CHARS:]
    return ""


def string(function: Callable[..., int], *arguments: Any) -> str:
    """What a function of PDFium writes, UTF-16 with a zero at its end (fpdf_annot.h)."""
    import pypdfium2.raw as pdfium

    size = function(*arguments, None, 0)
    buffer = ctypes.create_string_buffer(max(size, 2))
    function(*arguments, ctypes.cast(buffer, ctypes.POINTER(pdfium.FPDF_WCHAR)), size)
    return buffer.raw[:size].decode("utf-16-le", errors="replace").rstrip("\0").strip()
