"""What kind of file something is, by what is in it: a name may say anything."""

import io
from pathlib import Path

from mcp.server.fastmcp.exceptions import ToolError

_HEAD_BYTES = 4096
_ZIP = b"PK\x03\x04"
_OLE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"

# Beginnings of files, by kind: https://en.wikipedia.org/wiki/List_of_file_signatures
_BEGINNINGS = {
    b"\x89PNG\r\n\x1a\n": "image",
    b"\xff\xd8\xff": "image",
    b"GIF8": "image",
    b"BM": "image",
    b"II*\0": "image",
    b"MM\0*": "image",
    b"ID3": "audio",
    b"\xff\xfb": "audio",
    b"\xff\xf3": "audio",
    b"\xff\xf2": "audio",
    b"fLaC": "audio",
    b"OggS": "audio",
    b"\x1aE\xdf\xa3": "video",
    b"{\\rtf": "rtf",
    b"\x1f\x8b": "gz",
    b"BZh": "bz2",
    b"\xfd7zXZ\0": "xz",
    b"7z\xbc\xaf\x27\x1c": "7z",
    b"Rar!": "rar",
    b"\x7fELF": "program",
    b"MZ": "program",
}
_CONTENT_TYPES = "[Content_Types].xml"
_OFFICE = {"word/": "docx", "xl/": "xlsx", "ppt/": "pptx"}
_OPEN_DOCUMENT = {"spreadsheet": "ods", "text": "odt", "presentation": "odp"}
_SPREADSHEETS = ("xlsx", "xls", "ods")
_ARCHIVES = ("zip", "tar", "gz", "bz2", "xz")

# What each is called, and what to read it with.
_NAMES = {
    "docx": ("a Word file", "extract_docx_content"),
    "pptx": ("a PowerPoint file", "extract_pptx_content"),
    "pdf": ("a PDF file", "convert_document_to_markdown"),
    "epub": ("an EPUB book", "extract_epub_content"),
    "html": ("an HTML page", "extract_html_content"),
    "text": ("a text file", "extract_text_content"),
    "image": ("an image", "extract_text_ocr or analyze_image_ai"),
    "audio": ("an audio file", "transcribe_audio"),
    "video": ("a video", "analyze_video"),
    "rtf": ("a rich text file", "extract_docx_content"),
    "doc": ("a Word file of before 2007", "extract_docx_content"),
    "ppt": ("a PowerPoint file of before 2007", "extract_pptx_content"),
    "odt": ("an OpenDocument text", "extract_docx_content"),
    "odp": ("an OpenDocument presentation", "extract_pptx_content"),
    "7z": ("a 7z archive", "`bsdtar -xf` in a terminal"),
    "rar": ("a RAR archive", "`bsdtar -xf` in a terminal"),
    "program": ("a program", ""),
    "binary": ("of a binary format that is not known here", ""),
    "encrypted": ("an Office file protected with a password", ""),
    **dict.fromkeys(_SPREADSHEETS, ("a spreadsheet", "extract_csv_content")),
    **dict.fromkeys(_ARCHIVES, ("an archive", "list_archive and extract_archive")),
}


def kind(path: Path) -> str:
    """What is in a file: ``docx``, ``pdf``, ``text``, ``image``, ..., or ``binary``."""
    with path.open("rb") as file:
        head = file.read(_HEAD_BYTES)
    if head.startswith((_ZIP, b"PK\x05\x06")):
        return _kind_of_zip(path)
    if head.startswith(_OLE):
        return _kind_of_ole(path)
    if b"%PDF-" in head[:1024]:
        return "pdf"
    if head[257:262] == b"ustar":
        return "tar"
    if head.startswith(b"RIFF"):
        return {b"WAVE": "audio", b"AVI ": "video", b"WEBP": "image"}.get(head[8:12], "binary")
    if head[4:8] == b"ftyp":
        return "audio" if head[8:11] == b"M4A" else "video"
    for beginning, found in _BEGINNINGS.items():
        if head.startswith(beginning) and not (beginning in (b"BM", b"MZ") and b"\0" not in head):
            return found
    return _kind_of_text(head)


def expect(path: Path, *kinds: str) -> str:
    found = kind(path)
    if found in kinds:
        return found
    what, tool = _NAMES[found]
    wanted = " or ".join(dict.fromkeys(_NAMES[one][0] for one in kinds if one != "encrypted"))
    advice = f"Use {tool}." if tool else ""
    raise ToolError(f"{path.name} is {what}, not {wanted}. {advice}".rstrip())


def part_name(entry: str) -> str:
    """The name that a part of an Office file or book has where programs wrote it as they should; empty for what macOS
    adds to ZIP files.
    """
    name = entry.replace("\\", "/")
    if name.startswith("__MACOSX/") or name.rpartition("/")[2].startswith(("._", ".DS_Store")):
        return ""
    return _CONTENT_TYPES if name.lower() == _CONTENT_TYPES.lower() else name


def _kind_of_zip(path: Path) -> str:
    import zipfile

    try:
        with zipfile.ZipFile(path) as archive:
            names = list(map(part_name, archive.namelist()))
            mimetype = archive.read("mimetype")[:200].decode("latin-1") if "mimetype" in names else ""
    except (zipfile.BadZipFile, OSError, NotImplementedError, ValueError, RuntimeError) as error:
        raise ToolError(
            f"{path.name} is damaged or incomplete: it begins like a ZIP or Office file, but {error}."
        ) from error
    if mimetype.startswith("application/epub") or "META-INF/container.xml" in names:
        return "epub"
    for ending, found in _OPEN_DOCUMENT.items():
        if mimetype.startswith(f"application/vnd.oasis.opendocument.{ending}"):
            return found
    if _CONTENT_TYPES in names:
        for folder, found in _OFFICE.items():
            if any(name.startswith(folder) for name in names):
                return found
    return "zip"


def _kind_of_ole(path: Path) -> str:
    import olefile

    try:
        # Never by its path: a name that is not a file would be taken for the content.
        with olefile.OleFileIO(io.BytesIO(path.read_bytes())) as compound:
            streams = {entry[0].lower() for entry in compound.listdir() if entry}
    except (OSError, ValueError, IndexError) as error:
        raise ToolError(f"{path.name} is damaged: it begins like an old Office file, but {error}.") from error
    for stream, found in {
        "encryptedpackage": "encrypted",
        "workbook": "xls",
        "book": "xls",
        "worddocument": "doc",
        "powerpoint document": "ppt",
    }.items():
        if stream in streams:
            return found
    return "binary"


def _kind_of_text(head: bytes) -> str:
    from gaia_tools.charsets import is_text

    if not is_text(head):
        return "binary"
    beginning = head.replace(b"\0", b"").lstrip(b"\xef\xbb\xbf\xff\xfe \t\r\n").lower()
    if beginning.startswith((b"<!doctype html", b"<html")):
        return "html"
    return "html" if beginning.startswith((b"<?xml", b"<!--")) and b"<html" in beginning else "text"
