"""Hatch calls this for every build, `pip install --editable .` included: resize.c is compiled into the wheel.

Without a compiler Hilum is installed all the same, and torch resizes.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface  # type: ignore[import-not-found]  # of pip's build environment

_LIBRARY = "preprocessing/hilum_preprocessing/resize.so"


class CompileResize(BuildHookInterface):  # type: ignore[misc]  # as above
    """Named in pyproject.toml, [tool.hatch.build.hooks.custom]."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:  # noqa: ARG002 - hatchling's signature
        """Adds the library to the wheel, which then is one of this platform. In an editable install it lies beside its source."""
        if self.target_name != "wheel":
            return
        script = Path(self.root) / "deploy/compile_resize.py"
        made = subprocess.run([sys.executable, script], capture_output=True, text=True, check=False)
        if made.returncode:
            self.app.display_warning(f"resize.c was not compiled, torch will resize: {made.stderr.strip()}")
            return
        build_data["artifacts"].append(_LIBRARY)
        build_data["pure_python"] = False
        build_data["infer_tag"] = True
