"""Makes the files of five tasks in the current folder: a program for the interpreter of gaia-mcp-server's image.

They are of the kinds that GAIA asks about, and made here: a sheet, slides, speech, a picture, and pages with a link.
"""

import subprocess
from pathlib import Path

from openpyxl import Workbook
from PIL import Image, ImageDraw, ImageFont
from pptx import Presentation

FONT = "/usr/share/fonts/truetype/liberation/LiberationSans-Regular.ttf"
SALES = [("Oslo", 2022, 10), ("Oslo", 2023, 17.5), ("Bergen", 2023, 4), ("Oslo", 2023, 24.5)]

book = Workbook()
for row in [("city", "year", "sold"), *SALES]:
    book.active.append(row)
book.save("sales.xlsx")

slides = Presentation()
for title in ("Whales", "Ships", "More on whales", "The end"):
    slides.slides.add_slide(slides.slide_layouts[5]).shapes.title.text = title
slides.save("talk.pptx")

spoken = "flite=text='four seven one nine three':voice=slt"
subprocess.run(["ffmpeg", "-v", "error", "-f", "lavfi", "-i", spoken, "digits.wav"], check=True)

sign = Image.new("RGB", (600, 160), "white")
ImageDraw.Draw(sign).text((30, 40), "PLATFORM 42", fill="black", font=ImageFont.truetype(FONT, 72))
sign.save("sign.png")

Path("site").mkdir()
Path("site/index.html").write_text(
    "<title>Museum</title><h1>Museum</h1><a href='/hours.html'>Opening hours</a>"
)
Path("site/hours.html").write_text("<title>Hours</title><p>On Sundays the museum opens at 11:30.</p>")
