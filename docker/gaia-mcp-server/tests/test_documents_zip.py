"""Archives are listed and extracted into the workspace; nothing in them gets out of its folder or fills the disk."""

import gzip
import io
import os
import stat
import tarfile
import zipfile
from pathlib import Path

import pytest
from gaia_tools import archives
from gaia_tools.documents_zip import server

from tests.conftest import call, content, refusal, text


@pytest.fixture
def pack(workspace: Path) -> Path:
    with zipfile.ZipFile(workspace / "pack.zip", "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("notes/a.txt", "first")
        file.writestr("notes/ü.txt", "umlaut")
        file.writestr("empty/", "")
        file.writestr("b.bin", bytes(1000))
    return workspace / "pack.zip"


async def test_a_zip_is_listed_and_extracted(pack: Path, workspace: Path) -> None:
    shown = text(await call(server, "list_archive", file_path="pack.zip"))
    assert "pack.zip: 3 files, 1011 bytes" in shown
    assert "| notes/ü.txt | 6 |  |" in shown
    found = await content(server, "extract_archive", file_path="pack.zip")
    assert found["files"] == ["pack/notes/a.txt", "pack/notes/ü.txt", "pack/b.bin"]
    assert (workspace / "pack/notes/ü.txt").read_text() == "umlaut"


async def test_files_are_chosen_and_not_replaced_unasked(pack: Path, workspace: Path) -> None:
    found = await content(
        server, "extract_archive", file_path="pack.zip", files=["notes/a.txt"], output_dir="to/here"
    )
    assert found["files"] == ["to/here/notes/a.txt"]
    (workspace / "to/here/notes/a.txt").write_text("mine")
    assert "already" in await refusal(server, "extract_archive", file_path="pack.zip", output_dir="to/here")
    assert (workspace / "to/here/notes/a.txt").read_text() == "mine"
    await content(server, "extract_archive", file_path="pack.zip", output_dir="to/here", overwrite=True)
    assert (workspace / "to/here/notes/a.txt").read_text() == "first"
    assert "has none of x" in await refusal(server, "extract_archive", file_path="pack.zip", files=["x"])
    assert "outside" in await refusal(server, "extract_archive", file_path="pack.zip", output_dir="../x")


@pytest.mark.parametrize("ending", ["tar", "tar.gz", "tgz", "tar.bz2", "tar.xz"])
async def test_tar_archives_of_all_compressions(workspace: Path, ending: str) -> None:
    mode = {"tar": "w", "tgz": "w:gz"}.get(ending, f"w:{ending[4:]}")
    with tarfile.open(workspace / f"a.{ending}", mode) as file:
        (workspace / "in.txt").write_text("held")
        file.add(workspace / "in.txt", "folder/in.txt")
    assert "folder/in.txt" in text(await call(server, "list_archive", file_path=f"a.{ending}"))
    found = await content(server, "extract_archive", file_path=f"a.{ending}")
    assert found["files"] == ["a/folder/in.txt"]
    assert (workspace / "a/folder/in.txt").read_text() == "held"


async def test_one_compressed_file(workspace: Path) -> None:
    (workspace / "data.csv.gz").write_bytes(gzip.compress(b"a,b\n"))
    assert (await content(server, "list_archive", file_path="data.csv.gz"))["entries"][0][
        "name"
    ] == "data.csv"
    await content(server, "extract_archive", file_path="data.csv.gz", output_dir="out")
    assert (workspace / "out/data.csv").read_text() == "a,b\n"


async def test_names_that_lead_elsewhere_are_left_out(workspace: Path) -> None:
    with zipfile.ZipFile(workspace / "slip.zip", "w") as file:
        for name in ("../up.txt", "a/../../up.txt", "/abs.txt", "..\\back.txt", "C:\\drive.txt", "good.txt"):
            file.writestr(zipfile.ZipInfo(name), name)
        link = zipfile.ZipInfo("link")
        link.external_attr = (stat.S_IFLNK | 0o777) << 16
        file.writestr(link, "/etc/passwd")
    found = await content(server, "extract_archive", file_path="slip.zip")
    assert found["files"] == ["slip/good.txt"]
    assert len(found["left_out"]) == 6
    everything = {path.name for path in workspace.parent.rglob("*") if path.is_file()}
    assert everything == {"slip.zip", "good.txt"}


async def test_links_and_devices_in_a_tar_are_left_out(workspace: Path) -> None:
    with tarfile.open(workspace / "a.tar", "w") as file:
        for name, kind, target in (
            ("out", tarfile.SYMTYPE, ".."),
            ("hard", tarfile.LNKTYPE, "/etc/passwd"),
            ("fifo", tarfile.FIFOTYPE, ""),
            ("device", tarfile.CHRTYPE, ""),
        ):
            entry = tarfile.TarInfo(name)
            entry.type, entry.linkname = kind, target
            file.addfile(entry)
        through = tarfile.TarInfo("out/through.txt")
        through.size = 4
        file.addfile(through, io.BytesIO(b"held"))
    found = await content(server, "extract_archive", file_path="a.tar")
    assert found["files"] == ["a/out/through.txt"]
    assert len(found["left_out"]) == 4
    assert not (workspace.parent / "through.txt").exists()


async def test_a_link_that_is_there_does_not_lead_out(pack: Path, workspace: Path) -> None:
    (workspace / "pack").mkdir()
    (workspace / "elsewhere").mkdir()
    (workspace / "pack/notes").symlink_to(workspace / "elsewhere")
    found = await content(server, "extract_archive", file_path="pack.zip")
    assert found["files"] == ["pack/b.bin"]
    assert not list((workspace / "elsewhere").iterdir())
    (workspace / "pack/notes").unlink()
    (workspace / "pack/notes").symlink_to("/tmp")
    assert "outside" in await refusal(server, "extract_archive", file_path="pack.zip", overwrite=True)


async def test_bombs_are_refused_or_cut_off(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with zipfile.ZipFile(workspace / "bomb.zip", "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("zeros", bytes(200 << 20))
    for tool in ("list_archive", "extract_archive"):
        assert "ZIP bomb" in await refusal(server, tool, file_path="bomb.zip")
    monkeypatch.setattr(archives, "_MAX_BYTES", 1 << 20)
    (workspace / "bomb.gz").write_bytes(gzip.compress(bytes(20 << 20)))
    assert "more than 1 MB" in await refusal(server, "extract_archive", file_path="bomb.gz")
    assert not (workspace / "bomb").exists() or not list((workspace / "bomb").iterdir())


async def test_too_many_files_are_refused(workspace: Path) -> None:
    with zipfile.ZipFile(workspace / "many.zip", "w") as file:
        for number in range(20_001):
            file.writestr(f"{number}", b"")
    assert "20001 files in it" in await refusal(server, "list_archive", file_path="many.zip")


async def test_a_size_that_lies_is_an_error(pack: Path, workspace: Path) -> None:
    held = (workspace / "pack.zip").read_bytes()
    directory = held.index(b"PK\x01\x02")
    for real, claimed in ((1000, 2 << 30), (1000, 10)):
        size = real.to_bytes(4, "little")
        lie = held[directory:].replace(size, claimed.to_bytes(4, "little"))
        (workspace / "lie.zip").write_bytes(held[:directory] + lie)
        assert await refusal(server, "extract_archive", file_path="lie.zip", output_dir=f"o{claimed}")
        assert not (workspace / f"o{claimed}/b.bin").exists()


async def test_damaged_and_unknown_archives_are_refused(pack: Path, workspace: Path) -> None:
    held = (workspace / "pack.zip").read_bytes()
    (workspace / "cut.zip").write_bytes(held[:60])
    assert "damaged or incomplete" in await refusal(server, "list_archive", file_path="cut.zip")
    (workspace / "cut.tar.gz").write_bytes(gzip.compress(os.urandom(5000))[:3000])
    assert "damaged" in await refusal(server, "extract_archive", file_path="cut.tar.gz")
    (workspace / "a.7z").write_bytes(b"7z\xbc\xaf\x27\x1c\0\x04" + bytes(50))
    assert "bsdtar" in await refusal(server, "list_archive", file_path="a.7z")
    (workspace / "zero.zip").touch()
    assert "0 bytes" in await refusal(server, "list_archive", file_path="zero.zip")


async def test_an_encrypted_archive_needs_its_password(workspace: Path) -> None:
    # The bytes of `zip -P sesame`: PKWARE's traditional encryption, which Python reads and does not write.
    (workspace / "locked.zip").write_bytes(_LOCKED)
    assert "encrypted" in text(await call(server, "list_archive", file_path="locked.zip"))
    assert "password=..." in await refusal(server, "extract_archive", file_path="locked.zip")
    wrong = await refusal(server, "extract_archive", file_path="locked.zip", password="x")
    assert "not with the password" in wrong
    await content(server, "extract_archive", file_path="locked.zip", password="sesame")
    assert (workspace / "locked/secret.txt").read_text() == "the secret\n"


_LOCKED = bytes.fromhex(
    "504b03040a000900000094a0755d561f4977170000000b0000000a0000007365637265742e74787437a88174b6e11cbdb9ef"
    "ad6007d870e52ab9f3398f042c504b0708561f4977170000000b000000504b01021e030a000900000094a0755d561f497717"
    "0000000b0000000a0000000000000001000000a481000000007365637265742e747874504b05060000000001000100380000"
    "004f0000000000"
)
