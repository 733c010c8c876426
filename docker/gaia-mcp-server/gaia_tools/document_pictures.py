"""Pictures taken out of documents, into a folder of the workspace."""

import mimetypes
from pathlib import Path

from gaia_tools.files import shown, writable

_MOST = 500
_MAX_BYTES = 200 << 20


class Pictures:
    """The pictures of one document, each written when it is found, in ``NAME_images`` of the workspace."""

    def __init__(self, document: Path):
        self._folder = f"{document.stem}_images"
        self._bytes = 0
        self.paths: list[str] = []

    def keep(self, content: bytes, media_type: str) -> str | None:
        self._bytes += len(content)
        if len(self.paths) >= _MOST or self._bytes > _MAX_BYTES:
            return None
        ending = mimetypes.guess_extension(media_type) or ".bin"
        target = writable(f"{self._folder}/image{len(self.paths) + 1}{ending}", overwrite=True)
        target.write_bytes(content)
        self.paths.append(shown(target))
        return self.paths[-1]
