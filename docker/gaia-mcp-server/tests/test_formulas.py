"""Formulas become TeX in which every number is kept."""

import pytest
from bs4 import BeautifulSoup
from gaia_tools.formulas import MATH, of_mathml, of_office_math
from lxml import etree


def mathml(inner: str) -> str:
    return of_mathml(BeautifulSoup(f"<math>{inner}</math>", "lxml").find_all("math"))[0]


@pytest.mark.parametrize(
    ("inner", "tex"),
    [
        ("<mfrac><mn>1</mn><mn>2</mn></mfrac>", r"$\frac{1}{2}$"),
        ("<msqrt><mn>2</mn></msqrt>", r"$\sqrt{2}$"),
        ("<menclose notation='radical'><mn>2</mn></menclose>", r"$\sqrt{2}$"),
        ("<msup><mn>10</mn><mrow><mo>-</mo><mn>3</mn></mrow></msup>", "$10^{-3}$"),
        ("<mn>3</mn><mo>\u2009</mo><mn>4</mn>", r"$3\ 4$"),
        ("<mrow><mn>1</mn></mrow><msup><mn>2</mn><mn>3</mn></msup>", r"$1\ 2^{3}$"),
        ("<semantics><mn>7</mn><annotation encoding='StarMath 5.0'>8</annotation></semantics>", "$7$"),
        ("<mphantom><mn>9</mn></mphantom><mn>5</mn>", "$5$"),
        ("<apply><plus/><cn>1</cn><ci>x</ci></apply>", "$1 x$"),
    ],
)
def test_mathml_becomes_tex(inner: str, tex: str) -> None:
    assert mathml(inner) == tex


def test_office_math_becomes_tex() -> None:
    half = "<m:f><m:num><m:r><m:t>1</m:t></m:r></m:num><m:den><m:r><m:t>2</m:t></m:r></m:den></m:f>"
    unknown = "<m:r><m:t>1</m:t></m:r><m:r><m:t>0</m:t></m:r><m:unknown><m:r><m:t>77</m:t></m:r></m:unknown>"
    found = [etree.fromstring(f'<m:oMath xmlns:m="{MATH[1:-1]}">{one}</m:oMath>') for one in (half, unknown)]
    assert of_office_math(found) == [r"$\frac{1}{2}$", "$1077$"]
