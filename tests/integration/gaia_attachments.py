"""Makes the attachments of tests/gaia_tasks.py in the current folder: a program for the interpreter of the tools.

What is asked for is in these files alone.
"""

import zipfile
from pathlib import Path

from docx import Document
from openpyxl import Workbook
from pptx import Presentation

book = Workbook()
for row in [("city", "year", "sold"), ("Oslo", 2022, 10), ("Oslo", 2023, 17.5), ("Oslo", 2023, 24.5)]:
    book.active.append(row)
book.save("a1-sheet.xlsx")

slides = Presentation()
for title in ("Ferries", "The ferry to Bodo departs on 4 May", "The end"):
    slides.slides.add_slide(slides.slide_layouts[5]).shapes.title.text = title
slides.save("b2-slides.pptx")

with zipfile.ZipFile("c3-archive.zip", "w") as archive:
    archive.writestr("prices/list.csv", "item,price,count\nlamp,99.5,10\nchair,23.95,10\n")

letter = Document()
letter.add_paragraph("Plant list")
table = letter.add_table(rows=0, cols=2)
for number, tree in enumerate(("Birch", "Alder", "Cedar"), 1):
    cells = table.add_row().cells
    cells[0].text, cells[1].text = str(number), tree
letter.save("d4-letter.docx")

Path("e5-program.py").write_text("total = 0\nfor n in range(1, 17):\n    total += n % 3\nprint(total)\n")
Path("g7-note.txt").write_text("The door is blue.\n")
