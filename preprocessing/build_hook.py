"""The build hook of Hatch, which compiles C into the wheel; `pip install --editable` runs it, too.

Both distributions of this repository use it; `sources` in their pyproject.toml names the C files.
Without a compiler, or a header that a source needs, the package is installed all the same, and
Python does the work.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

from hatchling.builders.config import BuilderConfig
from hatchling.builders.hooks.plugin.interface import BuildHookInterface

_COMPILE_C = Path(__file__).with_name("compile_c.py")


class CompileC(BuildHookInterface[BuilderConfig]):
    """Named in pyproject.toml, [tool.hatch.build.hooks.custom]."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:  # noqa: ARG002 - hatchling's signature
        """Add the compiled libraries to the wheel, which makes it a wheel of this platform.

        In an editable install they are in the folders of their sources.
        """
        if self.target_name != "wheel":
            return
        sources = [Path(self.root, source) for source in self.config["sources"]]
        made = subprocess.run(
            [sys.executable, _COMPILE_C, *sources], capture_output=True, text=True, check=False
        )
        if made.returncode:
            self.app.display_warning(made.stderr.strip())
        libraries = [source.with_suffix(".so") for source in sources]
        found = [str(path.relative_to(self.root)) for path in libraries if path.is_file()]
        build_data["artifacts"] += found
        if found:
            build_data["pure_python"] = False
            build_data["infer_tag"] = True
