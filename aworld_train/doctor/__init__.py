"""What this machine has, beside what training and a recipe need: ``aworld-train doctor``.

Each area is one module with a probe: a generator of findings that reads the machine through a `Machine` and what is
needed through a `Needs`. `examine` runs all probes, each within a time limit, and changes nothing on the machine.
Nothing heavy is imported: versions are read from the installed packages' metadata. What loads a model stands apart, in
``exactness``, and runs only where it is wanted (``doctor RECIPE --engine``).
"""

from aworld_train.doctor.examination import examine
from aworld_train.doctor.finding import Finding, Status
from aworld_train.doctor.machine import Machine
from aworld_train.doctor.needs import Needs

__all__ = ["Finding", "Machine", "Needs", "Status", "examine"]
