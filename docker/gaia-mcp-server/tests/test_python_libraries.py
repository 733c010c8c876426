"""The libraries for Python code: those that the tool names are there, and do real work within its limits."""

import json
import os
import re
import sys
import wave
from importlib import metadata
from pathlib import Path

import docx
import packages
import pytest
import xlwt
from gaia_tools import processes, python_code, terminal
from mcp.types import Tool
from PIL import Image
from reportlab.pdfgen import canvas

from tests.conftest import content

# Each ends with a line `name: result`, and works on files that the test has written.
PROGRAMS = {
    "pandas": """
        import io, pandas as pd
        table = pd.read_csv(io.StringIO("city,year,sold\\nOslo,2022,1\\nOslo,2023,17.5\\nOslo,2023,24.5"))
        table.to_excel("written.xlsx", index=False)
        sums = pd.read_excel("written.xlsx").groupby("year")["sold"].sum()
        print("pandas:", sums[2023], sums.to_frame().to_markdown().count("|") > 3)""",
    "numpy": "import numpy as np; print('numpy:', np.linalg.solve([[2.0, 1], [1, 3]], [3, 5]).round(6).tolist())",
    "scipy": """
        from scipy import optimize, stats
        print("scipy:", round(optimize.brentq(lambda x: x**3 - 8, 0, 5), 6), round(stats.norm.cdf(1.96), 3))""",
    "sympy": "import sympy as s; x = s.symbols('x'); print('sympy:', s.solve(x**2 - 5*x + 6), s.integrate(s.cos(x)))",
    "sklearn": """
        from sklearn.ensemble import RandomForestClassifier
        from sklearn.linear_model import LinearRegression
        line = LinearRegression(n_jobs=-1).fit([[1], [2], [3]], [3, 5, 7])
        forest = RandomForestClassifier(20, random_state=0, n_jobs=-1).fit([[0], [1]] * 9, [0, 1] * 9)
        print("sklearn:", round(line.predict([[10]])[0], 6), forest.predict([[1]]).tolist())""",
    "networkx": """
        import networkx as nx
        graph = nx.Graph([("a", "b"), ("b", "c"), ("a", "d"), ("d", "e"), ("e", "c")])
        print("networkx:", nx.shortest_path(graph, "a", "c"))""",
    # Without its remark that it lists the fonts, which depends on the time that this takes.
    "matplotlib": """
        import logging; logging.getLogger("matplotlib.font_manager").setLevel(logging.ERROR)
        import matplotlib.pyplot as plt
        plt.plot([1, 4, 9]); plt.savefig("drawn.png")
        from PIL import Image; print("matplotlib:", Image.open("drawn.png").format)""",
    "seaborn": """
        import seaborn as sns, pandas as pd
        axes = sns.barplot(pd.DataFrame({"x": ["a", "b"], "y": [1, 2]}), x="x", y="y")
        print("seaborn:", len(axes.patches))""",
    "cv2": """
        import cv2
        picture = cv2.imread("square.png", cv2.IMREAD_GRAYSCALE)
        contours, _ = cv2.findContours(cv2.threshold(picture, 127, 255, cv2.THRESH_BINARY)[1],
                                       cv2.RETR_EXTERNAL, cv2.CHAIN_APPROX_SIMPLE)
        print("cv2:", [cv2.boundingRect(one) for one in contours])""",
    "PIL": "from PIL import Image; print('PIL:', Image.open('square.png').getpixel((50, 50)))",
    "docx": "import docx; print('docx:', [p.text for p in docx.Document('letter.docx').paragraphs])",
    "pptx": """
        import pptx
        slides = pptx.Presentation(); slides.slides.add_slide(slides.slide_layouts[0]).shapes.title.text = "Hi"
        print("pptx:", [slide.shapes.title.text for slide in slides.slides])""",
    "openpyxl": """
        import openpyxl
        book = openpyxl.Workbook(); book.active["A1"] = 7; book.save("own.xlsx")
        print("openpyxl:", openpyxl.load_workbook("own.xlsx").active["A1"].value)""",
    "pypdf": "import pypdf; print('pypdf:', pypdf.PdfReader('page.pdf').pages[0].extract_text().strip())",
    "pdfplumber": "import pdfplumber; print('pdfplumber:', pdfplumber.open('page.pdf').pages[0].extract_text())",
    "xlrd": "import pandas as pd; print('xlrd:', pd.read_excel('old.xls')['amount'].sum())",
    "yaml": "import yaml; print('yaml:', yaml.safe_load('a: [1, 2]'))",
    "tabulate": "import tabulate; print('tabulate:', len(tabulate.tabulate([[1, 2]], ['a', 'b']).splitlines()))",
    "chess": """
        import chess
        board = chess.Board("6k1/5ppp/8/8/8/8/5PPP/3R2K1 w - - 0 1")
        mates = [board.san(move) for move in board.legal_moves if (board.push(move), board.is_checkmate(),
                 board.pop())[1]]
        print("chess:", mates)""",
    "Bio": """
        from Bio import SeqIO; from Bio.PDB import PDBParser
        record = next(SeqIO.parse("gene.fasta", "fasta"))
        atoms = list(PDBParser(QUIET=True).get_structure("x", "two.pdb").get_atoms())
        print("Bio:", record.seq.translate(), round(float(atoms[0] - atoms[1]), 3))""",
    "geopy": """
        from geopy.distance import geodesic
        print("geopy:", round(geodesic((59.9139, 10.7522), (60.3913, 5.3221)).km))""",
    "pint": "import pint; print('pint:', round(pint.UnitRegistry().Quantity(3, 'mile').to('km').magnitude, 4))",
    "dateutil": "from dateutil.parser import parse; print('dateutil:', parse('4 May 2023 17:05').isoformat())",
    "pytz": "import pytz; print('pytz:', pytz.timezone('Europe/Oslo').zone)",
    "mutagen": "import mutagen.wave; print('mutagen:', mutagen.File('tone.wav').info.length)",
    "pydub": """
        import warnings; warnings.simplefilter("ignore")  # it warns where there is no ffmpeg
        from pydub import AudioSegment; print("pydub:", len(AudioSegment.from_wav("tone.wav")))""",
    "requests": """
        import requests
        print("requests:", requests.Request("GET", "http://h/", params={"q": "a b"}).prepare().url)""",
    "bs4": "import bs4; print('bs4:', bs4.BeautifulSoup('<p>a<b>c</b>', 'lxml').b.text)",
    "lxml": "from lxml import html; print('lxml:', html.fromstring('<p><a href=u>t</a></p>').xpath('//a/@href'))",
}
RESULTS = {
    "pandas": "42.0 True",
    "numpy": "[0.8, 1.4]",
    "scipy": "2.0 0.975",
    "sympy": "[2, 3] sin(x)",
    "sklearn": "21.0 [1]",
    "networkx": "['a', 'b', 'c']",
    "matplotlib": "PNG",
    "seaborn": "2",
    "cv2": "[(30, 40, 50, 20)]",
    "PIL": "(255, 255, 255)",
    "docx": "['Dear Ada', 'Yours']",
    "pptx": "['Hi']",
    "openpyxl": "7",
    "pypdf": "Forty-two",
    "pdfplumber": "Forty-two",
    "xlrd": "42",
    "yaml": "{'a': [1, 2]}",
    "tabulate": "3",
    "chess": "['Rd8#']",
    "Bio": "MA 5.0",
    "geopy": "306",
    "pint": "4.828",
    "dateutil": "2023-05-04T17:05:00",
    "pytz": "Europe/Oslo",
    "mutagen": "0.5",
    "pydub": "500",
    "requests": "http://h/?q=a+b",
    "bs4": "c",
    "lxml": "['u']",
}
_ATOM = "ATOM  {0:5d}  CA  ALA A{0:4d}    {1:8.3f}{2:8.3f}{3:8.3f}  1.00  0.00           C\n"


@pytest.fixture
def files(workspace: Path) -> None:
    """What the programs read."""
    picture = Image.new("RGB", (100, 100))
    picture.paste((255, 255, 255), (30, 40, 80, 60))
    picture.save("square.png")
    letter = docx.Document()
    for line in ("Dear Ada", "Yours"):
        letter.add_paragraph(line)
    letter.save("letter.docx")
    page = canvas.Canvas("page.pdf")
    page.drawString(72, 700, "Forty-two")
    page.save()
    book = xlwt.Workbook()
    sheet = book.add_sheet("one")
    for row, value in enumerate(("amount", 30, 12)):
        sheet.write(row, 0, value)
    book.save("old.xls")
    Path("gene.fasta").write_text(">gene\nATGGCC\n")
    Path("two.pdb").write_text(_ATOM.format(1, 0, 0, 0) + _ATOM.format(2, 3, 4, 0) + "END\n")
    _write_tone(Path("tone.wav"))


def _write_tone(path: Path) -> None:
    with wave.open(str(path), "wb") as sound:
        sound.setnchannels(1)
        sound.setsampwidth(2)
        sound.setframerate(8000)
        sound.writeframes(bytes(2 * 4000))


def whole_program() -> str:
    """All programs after one another, each in a function of its own."""
    parts = []
    for name, program in PROGRAMS.items():
        lines = [line for line in program.splitlines() if line.strip()]
        parts.append(
            "\n".join([f"def use_{name}():", *(f"    {line.strip()}" for line in lines), f"use_{name}()"])
        )
    return "\n".join(parts)


async def tool() -> Tool:
    (found,) = await python_code.server.list_tools()
    return found


@pytest.mark.usefixtures("files")
async def test_one_program_uses_every_library_for_real() -> None:
    found = await content(
        python_code.server, "run_python_code", code=whole_program(), timeout=600, output_format="json"
    )
    assert (found["exit_code"], found["stderr"]) == (0, "")
    assert dict(line.split(": ", 1) for line in str(found["stdout"]).splitlines()) == RESULTS


@pytest.mark.usefixtures("files")
async def test_commands_have_the_same_libraries(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (workspace / "program.py").write_text(whole_program())
    monkeypatch.setenv("PATH", os.defpath)  # as a worker has it that is no container
    found = await content(
        terminal.server, "execute_command", command="python3 program.py", timeout=600, output_format="json"
    )
    assert found["exit_code"] == 0, found["output"]
    assert dict(line.split(": ", 1) for line in found["output"].splitlines()) == RESULTS


async def test_the_description_names_what_is_installed_and_nothing_else() -> None:
    listed = re.search(r"Installed beside the standard library: (.+)\.$", str((await tool()).description))
    assert listed and listed[1].split(", ") == list(python_code.LIBRARIES)
    assert set(PROGRAMS) == set(RESULTS) == set(python_code.LIBRARIES)
    named = {
        distribution.lower().replace("_", "-")
        for module in python_code.LIBRARIES
        for distribution in metadata.packages_distributions()[module]
    }
    required = set(packages.python({"python-server"})) - set(packages.python({"terminal-server"}))
    assert {re.split(r"[>=<\[]", one)[0].lower() for one in required} <= named


async def test_a_library_that_is_not_installed_is_not_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(python_code, "LIBRARIES", ("numpy", "no_such_library"))
    assert python_code._description().endswith(": numpy.")


def test_a_path_that_leads_to_this_interpreter_is_left_alone(tmp_path: Path) -> None:
    own = Path(sys.executable).parent
    before = {"PATH": f"{tmp_path}:{own}:/usr/bin", "A": "b"}
    assert processes.with_own_python(before) == before
    assert processes.with_own_python({"PATH": str(tmp_path)}) == {"PATH": f"{own}:{tmp_path}"}


async def test_libraries_start_no_more_threads_than_a_session_has_cores() -> None:
    code = """
import json, threading, cv2, numpy, scipy.linalg, sklearn.linear_model
from threadpoolctl import threadpool_info
numpy.ones((500, 500)) @ numpy.ones((500, 500))
print(json.dumps([cv2.getNumThreads(), *(one["num_threads"] for one in threadpool_info())]))
"""
    found = await content(python_code.server, "run_python_code", code=code)
    assert found["exit_code"] == 0, found["stderr"]
    assert set(json.loads(str(found["stdout"]))) == {2}
