"""What this machine has, beside what training and a recipe need: ``aworld-train doctor``.

A probe is a generator of findings that reads the machine through a `Machine` and what is needed through a `Needs`.
Probes change nothing and import nothing heavy; ``exactness`` loads the model, with ``doctor RECIPE --engine`` alone.
"""

from aworld_train.doctor.examination import examine as examine
from aworld_train.doctor.finding import Finding as Finding
from aworld_train.doctor.finding import FindingStatus as FindingStatus
from aworld_train.doctor.machine import Machine as Machine
from aworld_train.doctor.needs import Needs as Needs
