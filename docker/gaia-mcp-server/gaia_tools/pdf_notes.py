"""Notes that people put on the pages of a PDF file, and the files attached to it: neither is part of a page's text. To
be called in a process of its own.
"""

from itertools import islice
from typing import TYPE_CHECKING, Any

from gaia_tools.pdf_forms import HIDDEN, annotations, string

if TYPE_CHECKING:
    from pypdfium2 import PdfDocument, PdfPage

_MAX_NOTES = 200
_MAX_NOTE_CHARS = 2000
_MAX_MARKED_CHARS = 200
_MAX_FILES = 50


def notes(page: "PdfPage") -> list[str]:
    written = (_note(page, annotation) for annotation in annotations(page))
    return list(islice(filter(None, written), _MAX_NOTES))


def attached(pdf: "PdfDocument") -> list[str]:
    import pypdfium2.raw as pdfium

    return [
        string(pdfium.FPDFAttachment_GetName, pdfium.FPDFDoc_GetAttachment(pdf, number))
        for number in range(min(pdfium.FPDFDoc_GetAttachmentCount(pdf), _MAX_FILES))
    ]


def _note(page: "PdfPage", annotation: Any) -> str:
    import pypdfium2.raw as pdfium

    kind = pdfium.FPDFAnnot_GetSubtype(annotation)
    if kind in (pdfium.FPDF_ANNOT_WIDGET, pdfium.FPDF_ANNOT_LINK, pdfium.FPDF_ANNOT_POPUP):
        return ""
    if pdfium.FPDFAnnot_GetFlags(annotation) & HIDDEN:
        return ""
    text = string(pdfium.FPDFAnnot_GetStringValue, annotation, b"Contents")
    author = string(pdfium.FPDFAnnot_GetStringValue, annotation, b"T")
    about = f" by {author}" if author else ""
    if kind == pdfium.FPDF_ANNOT_FILEATTACHMENT:
        file = pdfium.FPDFAnnot_GetFileAttachment(annotation)
        name = string(pdfium.FPDFAttachment_GetName, file) if file else ""
        return f"- Attached file{about}: {name}" + (f" ({text[:_MAX_NOTE_CHARS]})" if text else "")
    if kind in (pdfium.FPDF_ANNOT_HIGHLIGHT, pdfium.FPDF_ANNOT_UNDERLINE, pdfium.FPDF_ANNOT_STRIKEOUT):
        about += f' on "{_words_below(page, annotation)}"'
    return f"- Note{about}: {' '.join(text.split())[:_MAX_NOTE_CHARS]}" if text else ""


def _words_below(page: "PdfPage", annotation: Any) -> str:
    import pypdfium2.raw as pdfium

    box = pdfium.FS_RECTF()
    pdfium.FPDFAnnot_GetRect(annotation, box)
    text_page = page.get_textpage()
    try:
        words = text_page.get_text_bounded(box.left, box.bottom, box.right, box.top)
    finally:
        text_page.close()
    return " ".join(words.replace("\0", "").split())[:_MAX_MARKED_CHARS]
