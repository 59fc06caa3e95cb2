"""The supervisor of all processes on one host, and the doctor that examines an installation."""

from hilum.supervisor.supervisor import Supervisor

__all__ = ["Supervisor"]
