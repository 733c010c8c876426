"""The probes by area, in the order in which findings are shown."""

from aworld_train.doctor.agent import check_agent_program
from aworld_train.doctor.clock import check_clock
from aworld_train.doctor.confinement import check_confinement
from aworld_train.doctor.disk import check_disk, check_shared_memory
from aworld_train.doctor.engine import check_engine
from aworld_train.doctor.finding import Probe
from aworld_train.doctor.gpu import check_gpus
from aworld_train.doctor.hub import check_hub, check_model
from aworld_train.doctor.inputs import check_inputs
from aworld_train.doctor.keys import check_keys
from aworld_train.doctor.limits import check_limits
from aworld_train.doctor.memory import check_memory, check_processors
from aworld_train.doctor.packages import check_packages, check_python
from aworld_train.doctor.ports import check_ports
from aworld_train.doctor.ray import check_ray
from aworld_train.doctor.run_folder import check_home, check_run_folder
from aworld_train.doctor.slurm import check_slurm
from aworld_train.doctor.tools import check_tools
from aworld_train.doctor.wheels import check_wheels

PROBES: dict[str, Probe] = {
    "python": check_python,
    "packages": check_packages,
    "wheels": check_wheels,
    "gpu": check_gpus,
    "memory": check_memory,
    "processors": check_processors,
    "disk": check_disk,
    "shared memory": check_shared_memory,
    "run folder": check_run_folder,
    "home": check_home,
    "limits": check_limits,
    "ports": check_ports,
    "clock": check_clock,
    "docker": check_engine,
    "tools": check_tools,
    "agent": check_agent_program,
    "code tests": check_confinement,
    "ray": check_ray,
    "slurm": check_slurm,
    "hub": check_hub,
    "model": check_model,
    "inputs": check_inputs,
    "keys": check_keys,
}
