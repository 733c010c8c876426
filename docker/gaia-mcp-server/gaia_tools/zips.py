"""ZIP files from anywhere: what they claim is checked before anything is unpacked.

Office files and EPUB books are ZIP files of XML. Their XML declares no entities, and one that does is refused unread.
"""

import io
import zipfile
import zlib
from pathlib import Path

from mcp.server.fastmcp.exceptions import ToolError

from gaia_tools.kinds import expect, part_name

_MAX_ENTRIES = 20_000
_MAX_BYTES = 1 << 30
# Deflate compresses 1,032 times at most. Sheets of one value come to 100, and small ones do no harm.
_MAX_RATIO = 200
_BYTES_OF_ANY_RATIO = 64 << 20
_CHUNK = 1 << 20
# What programs keep beside a document, in any state; no reader of it needs this.
_CUSTOM_XML = "customXml/"
_PASSWORD = "Give its password with password=..."


def opened(path: Path) -> zipfile.ZipFile:
    return _checked(path, path.name)


def office(path: Path, kind: str, password: str = "") -> io.BytesIO:
    content = io.BytesIO(path.read_bytes())
    if expect(path, kind, "encrypted") == "encrypted":
        content = decrypted(content, path.name, password)
    return checked(content, path.name)


def with_parts(content: io.BytesIO, parts: dict[str, bytes]) -> io.BytesIO:
    if not parts and _is_tidy(content):
        return content
    file = io.BytesIO()
    with zipfile.ZipFile(content) as old, zipfile.ZipFile(file, "w") as new:
        # Some readers take an OpenDocument file or a book for one only where its type comes first.
        for entry in sorted(old.infolist(), key=lambda one: one.filename != "mimetype"):
            if name := part_name(entry.filename):
                new.writestr(name, parts[name] if name in parts else old.read(entry))
    file.seek(0)
    return file


def _is_tidy(content: io.BytesIO) -> bool:
    with zipfile.ZipFile(content) as archive:
        names = archive.namelist()
    content.seek(0)
    return all(part_name(name) == name for name in names) and "mimetype" not in names[1:]


def decrypted(content: io.BytesIO, name: str, password: str) -> io.BytesIO:
    import msoffcrypto
    from msoffcrypto.exceptions import DecryptionError, FileFormatError, InvalidKeyError, ParseError

    if not password:
        raise ToolError(f"{name} is protected with a password. {_PASSWORD}")
    plain = io.BytesIO()
    try:
        protected = msoffcrypto.OfficeFile(content)
        protected.load_key(password=password)
        protected.decrypt(plain)
    except InvalidKeyError as error:
        raise ToolError(f"{name} is protected, and not with the password given.") from error
    except (DecryptionError, FileFormatError, ParseError) as error:
        raise ToolError(f"{name} is protected in a way that is not read here: {error}.") from error
    plain.seek(0)
    return plain


def checked(content: io.BytesIO, name: str) -> io.BytesIO:
    from xml.etree.ElementTree import ParseError

    from defusedxml import DefusedXmlException
    from defusedxml.ElementTree import iterparse

    broken: dict[str, bytes] = {}
    with _checked(content, name) as archive:
        if b":encryption-data" in _manifest(archive):
            raise ToolError(
                f"{name} is protected with a password, as OpenDocument files are: that is not read here."
            )
        for entry in archive.infolist():
            part_named = part_name(entry.filename)
            # OpenOffice leaves empty files behind, which declare nothing.
            if not entry.file_size or not part_named.lower().endswith((".xml", ".rels", ".vml")):
                continue
            try:
                with archive.open(entry) as part:
                    # A document type stands before the first element.
                    next(iter(iterparse(part, events=("start",), forbid_dtd=True)), None)
                    while part.read(_CHUNK):  # its checksum is checked at its end
                        pass
            except DefusedXmlException as error:
                raise ToolError(
                    f"{name} is not opened: {entry.filename} in it declares XML entities or a document type."
                ) from error
            except (ParseError, zipfile.BadZipFile, EOFError, OSError, NotImplementedError) as error:
                if isinstance(error, ParseError) and part_named.startswith(_CUSTOM_XML):
                    broken[part_named] = b"<empty/>"
                    continue
                raise ToolError(
                    f"{name} is damaged: {entry.filename} in it cannot be read: {error}."
                ) from error
            except RuntimeError as error:
                raise ToolError(f"{name} is encrypted as a ZIP file, as Office does not do.") from error
    content.seek(0)
    return with_parts(content, broken)


def _manifest(archive: zipfile.ZipFile) -> bytes:
    try:
        with archive.open("META-INF/manifest.xml") as file:
            return file.read(_CHUNK)
    except (
        KeyError,
        RuntimeError,
        zipfile.BadZipFile,
        EOFError,
        OSError,
        NotImplementedError,
        ValueError,
        zlib.error,
    ):
        return b""


def _checked(file: Path | io.BytesIO, name: str) -> zipfile.ZipFile:
    try:
        archive = zipfile.ZipFile(file)
    except (zipfile.BadZipFile, OSError, NotImplementedError, ValueError) as error:
        raise ToolError(f"{name} is damaged or incomplete: {error}.") from error
    entries = archive.infolist()
    if len(entries) > _MAX_ENTRIES:
        raise ToolError(f"{name} has {len(entries)} files in it; more than {_MAX_ENTRIES} are not read.")
    size = sum(entry.file_size for entry in entries)
    packed = sum(entry.compress_size for entry in entries)
    if size > _MAX_BYTES or size > max(_MAX_RATIO * packed, _BYTES_OF_ANY_RATIO):
        raise ToolError(
            f"{name} is not opened: it claims to hold {size >> 20} MB in {max(packed >> 10, 1)} KB, as a ZIP bomb does."
        )
    return archive
