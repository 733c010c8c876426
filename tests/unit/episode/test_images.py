"""Which files are images: those that every browser shows, within limits of bytes, pixels and shape."""

import base64
import hashlib
import io

import PIL.Image
import pytest

from aworld_train.episode import images
from aworld_train.episode.images import MAX_ASPECT_RATIO, Image, NoImage, marked_images
from aworld_train.image_files import data_uri


def file(width: int, height: int, kind: str = "PNG") -> bytes:
    buffer = io.BytesIO()
    PIL.Image.new("RGB", (width, height), "red").save(buffer, kind)
    return buffer.getvalue()


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP", "GIF"])
def test_a_file_of_a_format_that_browsers_show_is_an_image(kind: str) -> None:
    content = file(3, 2, kind)
    image = Image.read(content, 4)
    assert (image.position, image.file) == (4, content)
    assert image.digest == hashlib.sha256(content).hexdigest()
    assert (image.picture.mode, image.picture.size) == ("RGB", (3, 2))
    assert Image.read_base64(base64.b64encode(content).decode(), 4) == image


@pytest.mark.parametrize("kind", ["BMP", "TIFF", "PPM"])
def test_a_file_of_another_format_is_not(kind: str) -> None:
    with pytest.raises(NoImage, match="cannot be read as PNG, JPEG, WEBP, GIF"):
        Image.read(file(3, 2, kind), 0)


@pytest.mark.parametrize("text", ["%%%", "QUJD", ""])
def test_a_text_that_is_no_file_in_base64_is_not(text: str) -> None:
    with pytest.raises(NoImage):
        Image.read_base64(text, 0)


def test_the_limits_themselves_are_allowed_and_one_more_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    content = file(4, 3)
    monkeypatch.setattr(images, "MAX_IMAGE_BYTES", len(content))
    monkeypatch.setattr(images, "MAX_IMAGE_PIXELS", 12)
    assert Image.read(content, 0).picture.size == (4, 3)
    monkeypatch.setattr(images, "MAX_IMAGE_PIXELS", 11)
    with pytest.raises(NoImage, match="4 x 3 pixels, and the most is 11"):
        Image.read(content, 0)
    monkeypatch.setattr(images, "MAX_IMAGE_BYTES", len(content) - 1)
    with pytest.raises(NoImage, match="bytes, and the most is"):
        Image.read(content, 0)


@pytest.mark.parametrize("turned", [False, True])
def test_a_strip_may_be_as_narrow_as_processors_take_it(turned: bool) -> None:
    for width, is_image in ((2 * MAX_ASPECT_RATIO, True), (2 * MAX_ASPECT_RATIO + 1, False)):
        content = file(2, width) if turned else file(width, 2)
        if is_image:
            assert Image.read(content, 0)
        else:
            with pytest.raises(NoImage, match="more than 200 to 1"):
                Image.read(content, 0)


def test_a_mark_becomes_its_image_and_other_brackets_stay_text() -> None:
    first, second = Image.read(file(3, 2), 0), Image.read(file(2, 3), 0)
    text = f"{first.mark}a [image 7] {second.mark}{first.mark} b"
    plain, found = marked_images(text, [data_uri(first.file), data_uri(second.file)])
    assert plain == "a [image 7]  b"
    assert [(image.position, image.digest) for image in found] == [
        (0, first.digest),
        (12, second.digest),
        (12, first.digest),
    ]


@pytest.mark.parametrize("uri", ["https://example.org/a.png", "data:image/png;base64,QUJD", ""])
def test_a_uri_that_holds_no_image_is_refused(uri: str) -> None:
    with pytest.raises(NoImage):
        marked_images("[image 7]", [uri])
