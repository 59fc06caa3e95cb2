"""Hatch calls this for every build, `pip install --editable .` included.

What is C is compiled into the wheel.

Without a compiler, or a header that a source needs, Hilum is installed all the same, and Python
does it.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

from hatchling.builders.config import BuilderConfig
from hatchling.builders.hooks.plugin.interface import BuildHookInterface

_LIBRARIES = (
    "preprocessing/hilum_preprocessing/resize/resize.so",
    "server/hilum/receive/storage/transfer.so",
)


class CompileC(BuildHookInterface[BuilderConfig]):
    """Named in pyproject.toml, [tool.hatch.build.hooks.custom]."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:  # noqa: ARG002 - hatchling's signature
        """Adds the libraries to the wheel, which then is one of this platform.

        In an editable install they lie beside their sources.
        """
        if self.target_name != "wheel":
            return
        script = Path(self.root) / "deploy/compile_c.py"
        made = subprocess.run([sys.executable, script], capture_output=True, text=True, check=False)
        if made.returncode:
            self.app.display_warning(made.stderr.strip())
        libraries = [library for library in _LIBRARIES if (Path(self.root) / library).is_file()]
        build_data["artifacts"] += libraries
        if libraries:
            build_data["pure_python"] = False
            build_data["infer_tag"] = True
