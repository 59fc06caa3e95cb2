"""Build TensorRT plans inside the container that serves them, and refuse those that belong elsewhere. Standard library and trtexec only.

    python3 build_plans.py build REPOSITORY [NAME …]    # minutes a model; what is up to date is left alone
    python3 build_plans.py check REPOSITORY             # at each start, before tritonserver: docs/models/profiles.md

REPOSITORY is the `tensorrt` folder that `hilum models build --profile tensorrt` made. A plan is
accepted when it gives the recorded logits of the recorded images within the release's tolerance:
fp16 first, else fp32 without TF32, else none. `1/plan.json` says what it was built from, on which
GPU and with which TensorRT; another GPU type, TensorRT or ONNX file needs another plan.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

PRECISIONS: Final = ("fp16", "fp32")
_TRTEXEC: Final = "/usr/src/tensorrt/bin/trtexec"
_BANNER: Final = re.compile(r"\[TensorRT v(\d+)\]")
_BUILD_AGAIN: Final = "run build_plans.py build here"


class Refused(Exception):
    """Why there is no plan, for people."""


@dataclass(frozen=True)
class Place:
    """What a plan is tied to: the type of the GPU (name and compute capability), and TensorRT as trtexec spells its version."""

    gpu: str
    compute_capability: str
    tensorrt: str


def main() -> int:
    """Exit status 0: every plan is in its place. 1: not, and why stands on standard error."""
    arguments = _arguments()
    try:
        tool = _find_trtexec(arguments.trtexec)
        place = _place(tool)
        trees = _trees(arguments.repository, arguments.names)
        problems = _VERBS[arguments.verb](trees, tool, place)
    except Refused as refusal:
        problems = [str(refusal)]
    for problem in problems:
        print(f"build_plans: {problem}", file=sys.stderr)
    return 1 if problems else 0


def check(tree: Path, place: Place) -> Iterator[str]:
    """Why the plan of this tree must not be loaded here."""
    record = _read(tree / "1/plan.json")
    if not record or not (tree / "1/model.plan").is_file():
        yield f"{tree.name} has no plan: {_BUILD_AGAIN}"
        return
    wanted = {**asdict(place), "onnx_sha256": _request(tree)["onnx"]["fp32"]["sha256"]}
    for name, value in wanted.items():
        if record.get(name) != value:
            yield (
                f"{tree.name}: the plan is for {name} {record.get(name)}, here it is {value}:"
                f" {_BUILD_AGAIN}"
            )
    if record.get("plan_sha256") != _sha256(tree / "1/model.plan"):
        yield f"{tree.name}: the plan is not the file that was checked: {_BUILD_AGAIN}"


def _check_all(trees: list[Path], _tool: str, place: Place) -> list[str]:
    return [problem for tree in trees for problem in check(tree, place)]


def _build_all(trees: list[Path], tool: str, place: Place) -> list[str]:
    problems = []
    for tree in trees:
        try:
            is_current = not list(check(tree, place))
            print(f"{tree.name}: {'up to date' if is_current else _build(tree, tool, place)}")
        except Refused as refusal:
            problems.append(f"{tree.name}: {refusal}")
    return problems


def _build(tree: Path, tool: str, place: Place) -> str:
    """The first precision that passes.

    A plan that was there before goes in any case, because it is for something else.
    """
    request = _request(tree)
    (tree / "1/model.plan").unlink(missing_ok=True)
    (tree / "1/plan.json").unlink(missing_ok=True)
    _require_same_files(tree, request)
    failed = []
    with tempfile.TemporaryDirectory(dir=tree, prefix=".plan-") as scratch:
        for precision in PRECISIONS:
            plan = Path(scratch, f"{precision}.plan")
            try:
                worst = _made_and_compared(tree, request, precision, plan, tool)
            except Refused as refusal:  # what cannot be built in fp16 may be in fp32
                failed.append(f"{precision}: {refusal}")
                continue
            if worst <= request["tolerance"]:
                return _accept(
                    tree,
                    request,
                    plan,
                    {**asdict(place), "precision": precision, "largest_difference": worst},
                )
            failed.append(f"{precision} moves logits by {worst:.2g}")
    raise Refused(
        f"{', '.join(failed)}; {request['tolerance']:g} is allowed (engine.tolerance of the"
        " manifest)"
    )


def _require_same_files(tree: Path, request: Mapping[str, Any]) -> None:
    for entry in request["onnx"].values():
        if not (tree / entry["file"]).is_file() or _sha256(tree / entry["file"]) != entry["sha256"]:
            raise Refused(
                f"{entry['file']} is not the file that was checked: build the release for the"
                " tensorrt profile again"
            )


def _accept(tree: Path, request: Mapping[str, Any], plan: Path, facts: Mapping[str, Any]) -> str:
    """The record comes last: a plan without one is refused."""
    record = {
        **facts,
        "onnx_sha256": request["onnx"]["fp32"]["sha256"],
        "plan_sha256": _sha256(plan),
    }
    plan.replace(tree / "1/model.plan")
    unfinished = plan.with_name("plan.json")
    unfinished.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    unfinished.replace(tree / "1/plan.json")
    return (
        f"{record['precision']} plan for {record['gpu']}, logits within"
        f" {record['largest_difference']:.2g}"
    )


def _made_and_compared(
    tree: Path, request: Mapping[str, Any], precision: str, plan: Path, tool: str
) -> float:
    """Write `plan`; the largest difference of a logit.

    Strongly typed: the ONNX file says where half precision is, the only way from TensorRT 11 on,
    and the same under 10.
    """
    onnx = tree / request["onnx"][precision]["file"]
    shapes = [
        f"--{name}Shapes=image:{_times(shape)}"
        for name, shape in request["optimization_profile"].items()
    ]
    options = [
        "--stronglyTyped",
        "--noTF32",
        "--skipInference",
        f"--timingCacheFile={tree.parent / 'timing.cache'}",
    ]
    _run([tool, f"--onnx={onnx}", f"--saveEngine={plan}", *shapes, *options])
    return _worst(tree, request, plan, tool)


def _worst(tree: Path, request: Mapping[str, Any], plan: Path, tool: str) -> float:
    """Largest difference of a logit over all cases.

    Each alone, and as many together as fit into a batch.
    """
    _, *image = request["optimization_profile"]["max"]
    cases = [((tree / case["file"]).read_bytes(), case["logits"]) for case in request["cases"]]
    together = cases[: request["optimization_profile"]["max"][0]]
    worst = 0.0
    for batch in ([case] for case in cases):
        worst = max(worst, _difference(batch, image, plan, tool))
    return max(worst, _difference(together, image, plan, tool))


def _difference(
    batch: list[tuple[bytes, list[float]]], image: list[int], plan: Path, tool: str
) -> float:
    pixels = plan.with_name("image.bin")
    answer = plan.with_name("answer.json")
    pixels.write_bytes(b"".join(case for case, _ in batch))
    shape = f"--shapes=image:{_times([len(batch), *image])}"
    once = ["--iterations=1", "--warmUp=0", "--duration=0"]
    _run(
        [
            tool,
            f"--loadEngine={plan}",
            shape,
            f"--loadInputs=image:{pixels}",
            f"--exportOutput={answer}",
            *once,
        ]
    )
    try:
        outputs = {
            each["name"]: each["values"] for each in json.loads(answer.read_text(encoding="utf-8"))
        }
    except ValueError:
        return math.inf  # trtexec writes nan, which is no JSON
    wanted = [value for _, logits in batch for value in logits]
    if len(outputs["logits"]) != len(wanted):
        raise Refused(f"the plan gives {len(outputs['logits'])} logits, {len(wanted)} are expected")
    return float(
        max(abs(given - value) for given, value in zip(outputs["logits"], wanted, strict=True))
    )


def _place(tool: str) -> Place:
    """One type of GPU: a plan lies under one name, so a machine with two types runs a Triton for each (CUDA_VISIBLE_DEVICES)."""
    listing = _run(["nvidia-smi", "--query-gpu=name,compute_cap", "--format=csv,noheader"])
    types = sorted({line.strip() for line in listing.splitlines() if line.strip()})
    if len(types) != 1:
        raise Refused(
            f"{len(types)} types of GPU here ({'; '.join(types)}); show the container one type of"
            " them"
        )
    name, capability = (part.strip() for part in types[0].rsplit(",", 1))
    found = _BANNER.search(_run([tool, "--help"]))
    if found is None:
        raise Refused(f"{tool} does not say its version")
    return Place(name, capability, found.group(1))


def _find_trtexec(named: str | None) -> str:
    found = named or shutil.which("trtexec") or (_TRTEXEC if Path(_TRTEXEC).is_file() else None)
    if found is None:
        raise Refused(
            f"no trtexec in PATH or at {_TRTEXEC}: run this inside NGC's tritonserver or tensorrt"
            " image, or name it with --trtexec"
        )
    return found


def _run(command: list[str]) -> str:
    """Standard output; what the program said when it fails."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError as error:
        raise Refused(f"{command[0]}: {error.strerror}") from error
    if done.returncode:
        said = "\n".join((done.stdout + done.stderr).splitlines()[-15:])
        raise Refused(f"{' '.join(command)} ended with {done.returncode}:\n{said}")
    return done.stdout


def _trees(repository: Path, names: list[str]) -> list[Path]:
    trees = [
        path.parent
        for path in sorted(repository.glob("*/request.json"))
        if not names or path.parent.name in names
    ]
    missing = set(names) - {tree.name for tree in trees}
    if missing or not trees:
        raise Refused(
            f"{repository} holds no {', '.join(sorted(missing)) or 'requests'}: run `hilum models"
            " build --profile tensorrt`"
        )
    return trees


def _request(tree: Path) -> dict[str, Any]:
    request = _read(tree / "request.json")
    if "onnx" not in request:
        raise Refused(
            f"request.json of {tree.name} is damaged: build the release for the tensorrt profile"
            " again"
        )
    return request


def _read(path: Path) -> dict[str, Any]:
    try:
        content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return content


def _times(shape: list[int]) -> str:
    return "x".join(map(str, shape))


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as source:
        while piece := source.read(1 << 20):
            digest.update(piece)
    return digest.hexdigest()


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("verb", choices=sorted(_VERBS))
    parser.add_argument("repository", type=Path)
    parser.add_argument("names", nargs="*", help="Triton names; none: all")
    parser.add_argument("--trtexec")
    return parser.parse_args()


_VERBS: Final = {"build": _build_all, "check": _check_all}

if __name__ == "__main__":
    sys.exit(main())
