"""What tests of several kinds of documents make: pictures, and Office files with parts put in their place."""

import io
import zipfile
from pathlib import Path

from PIL import Image, ImageDraw


def picture(size: tuple[int, int] = (60, 40), colour: str = "red") -> io.BytesIO:
    """A PNG."""
    file = io.BytesIO()
    image = Image.new("RGB", size, colour)
    ImageDraw.Draw(image).line((0, 0, *size), fill="blue")
    image.save(file, "PNG")
    file.seek(0)
    return file


def rewritten(path: Path, part: str, change: bytes) -> None:
    """Put something in the place of a part of an Office file, or beside the others."""
    old = zipfile.ZipFile(io.BytesIO(path.read_bytes()))
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as new:
        for entry in old.infolist():
            if entry.filename != part:
                new.writestr(entry.filename, old.read(entry))
        new.writestr(part, change)


def laughs(encoding: str = "utf-8") -> bytes:
    """XML whose entities grow to gigabytes where they are expanded."""
    entities = "".join(f'<!ENTITY l{n} "{f"&l{n - 1};" * 10}">' for n in range(1, 12))
    text = (
        f'<?xml version="1.0" encoding="{encoding}"?><!DOCTYPE x [<!ENTITY l0 "lol">{entities}]><x>&l11;</x>'
    )
    return text.encode(encoding)


def pdf(*objects: bytes) -> bytes:
    """A file of these objects, without the table of where they are, which readers make anew."""
    numbered = (b"%d 0 obj\n%s\nendobj\n" % (number, one) for number, one in enumerate(objects, 1))
    return b"%PDF-1.7\n" + b"".join(numbered) + b"trailer\n<< /Root 1 0 R >>\n%%EOF\n"


def as_programs_write_it(path: Path) -> None:
    """Pack an Office file or book again as macOS and careless programs do."""
    old = zipfile.ZipFile(io.BytesIO(path.read_bytes()))
    entries = [(entry.filename, old.read(entry)) for entry in old.infolist()]
    with zipfile.ZipFile(path, "w") as new:
        new.writestr("__MACOSX/._content.xml", b"\0\5\x16\7 no XML")
        new.writestr("customXml/item1.xml", b"<broken")
        for name, content in reversed(entries):
            untidy = name.lower() if name.startswith("[") else name.replace("/", "\\")
            entry = zipfile.ZipInfo("a")
            entry.filename = untidy
            new.writestr(entry, content)
