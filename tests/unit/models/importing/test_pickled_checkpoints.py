"""Pickles are read in a locked process that runs nothing of them.

Whole modules give their tensors, traps give a reason.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import types
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from hilum.errors import ConfigurationError
from hilum.models.formats import safetensors
from hilum.models.importing import locked_process
from hilum.models.networks.densenet import DenseNet121
from tests.support.models.checkpoints import as_chexnet

NETWORK = DenseNet121(1, 3, 32, 32)
FORMS = pytest.mark.parametrize("is_zip", [True, False], ids=["zip", "legacy"])
# The beginning of the form before torch 1.6: magic number, protocol, machine.
LEGACY = b"".join(
    pickle.dumps(part, 2) for part in (0x1950A86A20F9469CFC6C, 1001, {"little_endian": True})
)


def _save(thing: object, path: Path, is_zip: bool = True) -> Path:
    torch.save(thing, path, _use_new_zipfile_serialization=is_zip)
    return path


def _converted(source: Path) -> dict[str, Tensor]:
    destination = source.with_suffix(".safetensors")
    locked_process.to_safetensors(source, destination)
    return safetensors.read(destination)


def _refusal(source: Path) -> str:
    destination = source.with_suffix(".safetensors")
    with pytest.raises(ConfigurationError) as caught:
        locked_process.to_safetensors(source, destination)
    assert not destination.exists()
    (problem,) = caught.value.problems
    return problem


def _assert_equal(found: dict[str, Tensor], expected: dict[str, Tensor]) -> None:
    assert set(found) == set(expected)
    for name, tensor in expected.items():
        assert found[name].dtype == tensor.dtype
        assert torch.equal(found[name], tensor), name


class Trap:
    """What a hostile checkpoint holds: a call that is made when it is unpickled."""

    def __init__(self, function: Any, *arguments: object) -> None:
        self._call = (function, arguments)

    def __reduce__(self) -> tuple[Any, Any]:
        return self._call


@pytest.fixture
def like_torchxrayvision() -> Iterator[type[nn.Module]]:
    """A class of a package that exists while a checkpoint is written, and not when it is read."""
    package = types.ModuleType("torchxrayvision")
    module = types.ModuleType("torchxrayvision.models")

    class DenseNet(DenseNet121):
        """With what torchxrayvision's carries along."""

        def __init__(self) -> None:
            super().__init__(1, 3, 32, 32)
            self.register_buffer("op_threshs", torch.tensor([0.1, torch.nan, 0.3]))
            self.register_buffer("scratch", torch.zeros(5), persistent=False)
            self.pathologies = ["Mass", "", "Edema"]
            self.upsample = nn.Upsample(size=(224, 224), mode="bilinear")
            self.weights = None

    DenseNet.__module__, DenseNet.__qualname__ = "torchxrayvision.models", "DenseNet"
    module.DenseNet = DenseNet  # type: ignore[attr-defined]
    sys.modules |= {"torchxrayvision": package, "torchxrayvision.models": module}
    yield DenseNet
    del sys.modules["torchxrayvision"], sys.modules["torchxrayvision.models"]


@FORMS
@pytest.mark.filterwarnings("ignore:Couldn't retrieve source code")
def test_a_whole_module_gives_its_tensors_bit_for_bit(
    tmp_path: Path, is_zip: bool, like_torchxrayvision: type[nn.Module]
) -> None:
    network = like_torchxrayvision()
    source = _save(network, tmp_path / "whole.pt", is_zip)
    assert b"torchxrayvision.models" in source.read_bytes()
    found = _converted(source)
    thresholds, expected = found.pop("op_threshs"), dict(network.state_dict())
    assert torch.equal(thresholds, expected.pop("op_threshs").nan_to_num()) is False
    assert torch.equal(thresholds.nan_to_num(), network.state_dict()["op_threshs"].nan_to_num())
    _assert_equal(found, expected)
    assert "scratch" not in found


@FORMS
@pytest.mark.parametrize("nest", [None, "state_dict", "model", "model_state_dict"])
def test_a_state_dictionary_is_found_where_training_scripts_put_it(
    tmp_path: Path, is_zip: bool, nest: str | None
) -> None:
    state = NETWORK.state_dict()
    found = _converted(
        _save({"epoch": 3, nest: state} if nest else state, tmp_path / "w.pth", is_zip)
    )
    _assert_equal(found, dict(state))


@FORMS
def test_a_chexnet_checkpoint_is_read(tmp_path: Path, is_zip: bool) -> None:
    saved = as_chexnet(NETWORK.state_dict())
    found = _converted(_save(saved, tmp_path / "model.pth.tar", is_zip))
    assert isinstance(saved["state_dict"], dict)
    _assert_equal(found, saved["state_dict"])


@FORMS
def test_tensors_of_every_form_come_back(tmp_path: Path, is_zip: bool) -> None:
    whole = torch.arange(10.0)
    tensors = {
        "turned": torch.arange(24.0).reshape(2, 3, 4).permute(2, 0, 1),
        "channels last": torch.randn(4, 3, 3, 2).to(memory_format=torch.channels_last),
        "a part": whole[2:7],
        "every second": whole[::2],
        "shared": whole,
        "one": torch.tensor(3),
        "none": torch.zeros(0, 3),
        "yes or no": torch.tensor([True, False]),
        "half": torch.randn(5).half(),
        "brain": torch.randn(5).bfloat16(),
        "parameter": nn.Parameter(torch.randn(3, 1, 2)).data,
    }
    _assert_equal(_converted(_save(tensors, tmp_path / "w.pt", is_zip)), tensors)


def test_numbers_of_other_libraries_beside_the_weights_do_no_harm(tmp_path: Path) -> None:
    import argparse
    import datetime

    import numpy as np

    beside = {
        "auroc": np.float64(0.8),
        "when": datetime.datetime(2020, 1, 1),  # noqa: DTZ001
        "arguments": argparse.Namespace(lr=0.1),
        "folder": Path("a"),
    }
    _assert_equal(
        _converted(_save({"state_dict": NETWORK.state_dict(), **beside}, tmp_path / "w.pt")),
        dict(NETWORK.state_dict()),
    )


@FORMS
def test_what_a_hostile_pickle_asks_for_is_not_done(tmp_path: Path, is_zip: bool) -> None:
    witness = tmp_path / "ran"
    getting = Trap(getattr, Trap(__import__, "os"), "system")
    traps = {
        "posix.system": Trap(os.system, f"touch {witness}"),
        "builtins.eval": Trap(eval, f"open({str(witness)!r}, 'w')"),
        "builtins.exec": Trap(exec, f"open({str(witness)!r}, 'w')"),
        "builtins.getattr": getting,
        "subprocess.Popen": Trap(subprocess.Popen, ["touch", str(witness)]),
        "io.open": Trap(open, str(witness), "w"),
        "runpy.run_path": Trap(__import__("runpy").run_path, str(witness)),
    }
    for name, trap in traps.items():
        # The newer form inside a dictionary, the older one bare: a process is started for each.
        problem = _refusal(
            _save(
                {"a": torch.zeros(2), "b": trap} if is_zip else trap,
                tmp_path / f"{name}.pt",
                is_zip,
            )
        )
        assert (
            f"it asks for {name}, which weights never need. Nothing of it was run. Do not use this"
            " file" in problem
        )
    assert not witness.exists()


def test_a_trap_inside_a_module_is_found(
    tmp_path: Path, like_torchxrayvision: type[nn.Module]
) -> None:
    network = like_torchxrayvision()
    network.hook = Trap(os.system, "true")  # type: ignore[assignment]
    assert "it asks for posix.system" in _refusal(_save(network, tmp_path / "w.pt"))


class Rebuilt:
    """Asks for a function of a library that does more than it seems."""

    def __reduce__(self) -> tuple[Any, Any]:
        return torch.hub.load, ("owner/repository", "model")


def test_functions_of_libraries_are_not_called_either(tmp_path: Path) -> None:
    assert "'a', ... are no tensors" in _refusal(_save({"a": Rebuilt()}, tmp_path / "w.pt"))


@pytest.mark.parametrize(
    "opcodes",
    [b"\x80\x04N\x72\xff\xff\xff\x7f.", b"\x80\x05\x96" + (1 << 40).to_bytes(8, "little") + b"."],
    ids=["a memo of 2^31 places", "a bytearray of 2^40 bytes"],
)
def test_a_pickle_that_wants_all_memory_gets_none(tmp_path: Path, opcodes: bytes) -> None:
    (tmp_path / "bomb.pt").write_bytes(LEGACY + opcodes)
    assert "it asks for more memory than its size explains" in _refusal(tmp_path / "bomb.pt")


def test_a_compressed_archive_is_refused(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "bomb.pt", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("archive/data.pkl", b"\0" * 10_000_000)
    assert "is compressed, which torch never does" in _refusal(tmp_path / "bomb.pt")


def test_one_number_does_not_become_a_gigabyte(tmp_path: Path) -> None:
    assert "many times the file" in _refusal(
        _save({"a": torch.zeros(1).expand(30_000, 10_000)}, tmp_path / "w.pt")
    )
    assert "larger than its storage" in _refusal(
        _save({"a": torch.zeros(4).expand(100, 4)}, tmp_path / "w.pt")
    )


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "EOFError"),
        (b"a text", "not a readable checkpoint"),
        (
            LEGACY + pickle.dumps([1, 2], 2) + pickle.dumps([], 2),
            "it holds a list, no state dictionary",
        ),
        (LEGACY + b"\x80\x02(lp0\n", "not a readable checkpoint"),
        (pickle.dumps(1, 2) + pickle.dumps(2, 2), "no torch file"),
    ],
)
def test_what_is_no_checkpoint_is_refused_in_words(
    tmp_path: Path, content: bytes, problem: str
) -> None:
    (tmp_path / "w.pt").write_bytes(content)
    assert problem in _refusal(tmp_path / "w.pt")


@FORMS
def test_no_cut_of_a_file_is_taken_for_a_whole_one(tmp_path: Path, is_zip: bool) -> None:
    whole = _save(
        {"a": torch.arange(100.0), "b": torch.zeros(7, dtype=torch.int64)},
        tmp_path / "w.pt",
        is_zip,
    ).read_bytes()
    for cut in range(0, len(whole), max(1, len(whole) // 4)):
        (tmp_path / "cut.pt").write_bytes(whole[:cut])
        assert "not a readable checkpoint" in _refusal(tmp_path / "cut.pt")


@pytest.mark.parametrize(
    "attempt",
    [
        "open('/etc/hostname')",
        "open('made_by_a_checkpoint', 'w')",
        "import socket; socket.socket()",
        "import os; os.fork()",
        "import os; os.pipe()",
        "bytearray(3 << 30)",
        (
            "import os, resource; resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64));"
            " open('/etc/hostname')"
        ),
    ],
)
def test_the_locked_process_can_do_nothing_else(attempt: str) -> None:
    before = (
        "import os, resource, socket\nfrom hilum.models.importing import"
        " convert\nconvert.lock(1000)\nprint('locked')"
    )
    code = f"{before}\n{attempt}\nprint('done')"
    done = subprocess.run(
        [sys.executable, "-I", "-c", code], capture_output=True, text=True, check=False
    )
    assert done.stdout == "locked\n"
    assert done.returncode == 1


def test_the_locked_process_is_nobody() -> None:
    if os.geteuid() != 0:
        pytest.skip("only root has rights to give up")
    code = (
        "import os\nfrom hilum.models.importing import"
        " convert\nconvert.lock(1000)\nprint(os.getuid(), os.getgid(), os.getgroups())"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-c", code], capture_output=True, text=True, check=True
    )
    assert done.stdout == "65534 65534 []\n"


def test_the_locked_process_needs_the_standard_library_alone() -> None:
    loaded = "{name.partition('.')[0] for name in sys.modules}"
    code = (
        f"import sys\nimport hilum.models.importing.convert\nprint({loaded} & {{'torch', 'numpy',"
        " 'pydantic', 'onnx'})"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-c", code], capture_output=True, text=True, check=True
    )
    assert done.stdout == "set()\n"


MUTATE = """
import io, random, sys
from hilum.models.importing import convert
files = [open(name, "rb").read() for name in sys.argv[1:]]
convert.lock(1 << 20)
draws, read = random.Random(20261120), 0
for _ in range(1500):
    content = bytearray(draws.choice(files))
    for _ in range(draws.choice((1, 1, 2, 4, 16))):
        place, kind = draws.randrange(len(content)), draws.randrange(3)
        if kind == 0:
            content[place] = draws.randrange(256)
        elif kind == 1:
            del content[place : place + draws.randrange(8)]
        else:
            content[place:place] = bytes(draws.randrange(256) for _ in range(draws.randrange(6)))
    try:
        convert.convert(io.BytesIO(bytes(content)), io.BytesIO(), 1 << 22)
        read += 1
    except convert.REASONS:
        pass
print(read)
"""


def test_a_changed_file_is_read_or_refused_and_never_crashes(tmp_path: Path) -> None:
    network = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2))
    things = {"state": network.state_dict(), "whole": network}
    files = [
        _save(thing, tmp_path / f"{name}{is_zip}", is_zip)
        for name, thing in things.items()
        for is_zip in (True, False)
    ]
    done = subprocess.run(
        [sys.executable, "-I", "-c", MUTATE, *map(str, files)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert 100 < int(done.stdout) < 1400
