"""The compiled resize says what the product in torch says, whatever picture, kernel and part it is given; without it torch resizes."""

from __future__ import annotations

import ctypes
import math
import shutil
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hilum_preprocessing import RECIPES, InputSpec, StoredValues, prepare_array, prepare_stored
from hilum_preprocessing.batch import prepare_batch
from hilum_preprocessing.resize import compiled, library
from hilum_preprocessing.resize.axes import FULL, Axis, Grid, on_grid
from hilum_preprocessing.resize.compiled import (
    SampleBuffer,
    extremes,
    loaded,
    resized,
    resized_whole,
)
from hilum_preprocessing.resize.kernels import taps
from hilum_preprocessing.resize.resample import pixels_of, resize
from hilum_preprocessing.spec.operations import Resize
from hilum_preprocessing.tensor.compiled_path import prepared
from preprocessing.compile_c import compiled as compile_library
from tests.support.machine.compiling import (
    COMPILERS,
    quick_library,
    require_no_access_outside,
    verdict_on,
)
from tests.support.objects.matrices import dense
from tests.support.peers.peers import missing

KERNELS = [
    "skimage",
    "cv2_area",
    "pil_bilinear_aa",
    "pil_bicubic_aa",
    "pil_lanczos",
    "cv2_linear",
    "torch_bicubic",
    "nearest",
]
USED = (True, "compiled (resize.so)")
SOURCE = library.PATH.with_suffix(".c")
RANGES = {"u1": (0, 255), "i1": (-128, 127), "u2": (0, 65535), "i2": (-32768, 32767)}

has_library = pytest.mark.skipif(loaded()[0] is None, reason=f"resizes are done {loaded()[1]}")


def product_of(axis: Axis) -> np.ndarray:
    return dense(
        on_grid(taps(axis.kernel, axis.n_in, axis.n_out), axis.n_in, axis.grid), axis.length
    )


def drawn(dtype: str, shape: tuple[int, int], seed: int = 0) -> np.ndarray:
    low, high = RANGES[dtype]
    return np.random.default_rng(seed).integers(low, high + 1, shape).astype(dtype)


def test_a_machine_with_a_compiler_has_the_library() -> None:
    if not any(map(shutil.which, COMPILERS)):
        missing("no C compiler: resizes are done by torch (Debian packages gcc and libc6-dev)")
    library, how = loaded()
    assert library is not None, how


@has_library
@settings(max_examples=150, deadline=None, derandomize=True)
@given(
    dtype=st.sampled_from([*RANGES, "f4"]),
    kernels=st.tuples(st.sampled_from(KERNELS), st.sampled_from(KERNELS)),
    before=st.tuples(st.integers(1, 150), st.integers(1, 700)),
    after=st.tuples(st.integers(1, 90), st.integers(1, 90)),
    margin=st.integers(0, 3),
)
def test_it_is_the_product_of_both_matrices(dtype, kernels, before, after, margin):
    """Growing, shrinking, single samples, views into a larger picture."""
    around = (before[0] + 2 * margin, before[1] + 2 * margin)
    whole = (
        np.random.default_rng(1).uniform(-1000, 1000, around).astype("f4")
        if dtype == "f4"
        else drawn(dtype, around)
    )
    array = whole[margin : margin + before[0], margin : margin + before[1]]
    axes = [Axis(*axis) for axis in zip(kernels, before, after, strict=True)]
    found = resized(SampleBuffer(array), *axes)
    assert found is not None
    down, across = map(product_of, axes)
    exact = down @ array.astype(np.float64) @ across.T
    assert np.abs(found.image - exact).max() <= 4e-6 * max(1.0, float(np.abs(array).max()))
    assert np.allclose(found.down, down.sum(axis=1), atol=1e-6)
    assert np.allclose(found.across, across.sum(axis=1), atol=1e-6)
    assert found.ends == (None if dtype == "f4" else (array.min(), array.max()))


@has_library
@pytest.mark.parametrize("dtype", RANGES)
def test_clamps_and_tables_come_before_the_sums(dtype):
    array = drawn(dtype, (203, 331))
    axes = Axis("skimage", 203, 24), Axis("pil_bilinear_aa", 331, 40)
    down, across = map(product_of, axes)
    low, high = RANGES[dtype][0] * 0.3 + 20.25, RANGES[dtype][1] * 0.6
    for ends in ((low, high), (low, None), (None, high)):
        found = resized(SampleBuffer(array, *ends), *axes)
        exact = down @ np.clip(array.astype(float), *ends) @ across.T
        assert np.abs(found.image - exact).max() <= 4e-6 * np.abs(array).max(), ends
        assert found.ends == (
            array.min(),
            array.max(),
        ), "of what is stored, not of what the clamps leave"
    lookup = np.sqrt(np.arange(1 << 8 * array.itemsize, dtype=np.float32))
    levels = lookup[array.view(f"u{array.itemsize}")].astype(float)
    assert (
        np.abs(
            resized(SampleBuffer(array, lookup=lookup), *axes).image - down @ levels @ across.T
        ).max()
        < 1e-3
    )


@has_library
@pytest.mark.parametrize("side", [224, 320, 50, 37])
@pytest.mark.parametrize("limits", [(-1010.25, 1000.5), (-math.inf, math.inf)])
def test_what_is_left_for_after_a_resize_is_what_torch_does(side, limits):
    """To the bit where both have fused multiplications, but for the end of a row, which torch does without vectors."""
    made = resized(
        SampleBuffer(drawn("u2", (300, 400)) >> 4),
        Axis("skimage", 300, side),
        Axis("torch_bicubic", 400, side),
    )
    image, down, across = (
        torch.from_numpy(part.copy()) for part in (made.image, made.down, made.across)
    )
    wanted = (
        torch.addr(image, down, across, beta=0.5001221001221001, alpha=-1024.0)
        .clamp(*limits)
        .numpy()
    )
    compiled.finish(made, (0.5001221001221001, -1024.0), limits)
    assert np.allclose(made.image, wanted, rtol=0, atol=2e-4), "two steps of float32 at 1024"
    is_fused = torch.backends.cpu.get_cpu_capability() in ("AVX2", "AVX512")
    whole = side // 32 * 32 if is_fused else 0
    assert np.array_equal(made.image[:, :whole], wanted[:, :whole])


@has_library
@pytest.mark.parametrize("grid", [Grid(2), Grid(4, 1)])
def test_pictures_of_which_only_some_pixels_were_decoded(grid):
    axes = Axis("skimage", 400, 30, grid), Axis("cv2_area", 333, 28, grid)
    array = drawn("u2", (axes[0].length, axes[1].length))
    down, across = map(product_of, axes)
    assert (
        np.abs(
            resized(SampleBuffer(array), *axes).image - down @ array.astype(float) @ across.T
        ).max()
        < 0.3
    )


@has_library
@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    dtype=st.sampled_from([*RANGES]),
    shape=st.tuples(st.integers(1, 40), st.integers(1, 600)),
    seed=st.integers(0, 9),
)
def test_smallest_and_largest(dtype, shape, seed):
    array = drawn(dtype, shape, seed)
    assert extremes(array) == (array.min(), array.max())
    assert extremes(array[:, : shape[1] // 2 + 1]) == (
        array[:, : shape[1] // 2 + 1].min(),
        array[:, : shape[1] // 2 + 1].max(),
    )


@has_library
@settings(max_examples=120, deadline=None, derandomize=True)
@given(
    kernel=st.sampled_from(KERNELS),
    before=st.tuples(st.integers(1, 200), st.integers(1, 600)),
    after=st.tuples(st.integers(1, 90), st.integers(1, 90)),
)
def test_whole_grey_levels_are_those_of_torch_to_the_bit(kernel, before, after):
    """Which are Pillow's: test_preprocessing_kernels."""
    pixels = pixels_of(torch.from_numpy(drawn("u1", before)))
    op = Resize(*after, kernel=kernel, compute="uint8_rounded")
    assert (
        resized_whole(
            pixels.samples, *(Axis(kernel, *axis) for axis in zip(before, after, strict=True))
        )
        is not None
    )
    assert torch.equal(resize(pixels, op), resize(replace(pixels, samples=None), op))


@has_library
@pytest.mark.parametrize("dtype", RANGES)
def test_whole_grey_levels_of_a_table(dtype):
    array = drawn(dtype, (150, 333))
    levels = np.random.default_rng(5).integers(0, 256, 1 << 8 * array.itemsize).astype(np.uint8)
    axes = Axis("pil_bicubic_aa", 150, 40), Axis("pil_lanczos", 333, 51)
    shown = levels[array.view(f"u{array.itemsize}")]
    assert np.array_equal(
        resized_whole(SampleBuffer(array, levels=levels), *axes),
        resized_whole(SampleBuffer(shown), *axes),
    )
    assert resized_whole(SampleBuffer(array), *axes) is None or dtype == "u1", (
        "no grey levels without a table"
    )


@has_library
@pytest.mark.parametrize("dtype", RANGES)
def test_each_stored_value_is_counted(dtype):
    array = drawn(dtype, (203, 331))[3:, 5:]
    bits = array.view(f"u{array.itemsize}")
    assert np.array_equal(
        compiled.counts(array), np.bincount(bits.ravel(), minlength=1 << 8 * array.itemsize)
    )


@has_library
def test_what_it_cannot_read_is_left_to_torch():
    axes = Axis("nearest", 20, 5), Axis("nearest", 30, 5)
    odd = np.frombuffer(bytes(1201), "u2", 600, 1).reshape(20, 30)
    for array in (
        np.zeros((20, 30), "u4"),
        np.zeros((20, 30), ">u2"),
        np.zeros((20, 60), "u2")[:, ::2],
        np.zeros((30, 20), "u2").T,
        odd,
    ):
        assert resized(SampleBuffer(array), *axes) is None
        assert extremes(array) is None
        assert compiled.counts(array) is None
        assert resized_whole(SampleBuffer(array, levels=np.zeros(65536, "u1")), *axes) is None
    assert (
        resized(
            SampleBuffer(np.zeros((2, 70_000), "u2")),
            Axis("pil_lanczos", 2, 4096),
            Axis("pil_lanczos", 70_000, 8),
        )
        is None
    ), "memory"


@has_library
@pytest.mark.parametrize(
    ("shape", "tables"),
    [
        ((20, 31), {}),
        ((19, 30), {}),
        ((20, 30), {"lookup": np.zeros(256, "f4")}),
        ((20, 30), {"levels": np.zeros(4096, "u1")}),
    ],
)
def test_sizes_that_do_not_fit_each_other_never_reach_c(shape, tables):
    axes = Axis("nearest", 20, 5), Axis("nearest", 30, 5)
    samples = SampleBuffer(np.zeros(shape, "u2"), **tables)
    for function in (resized, resized_whole) if "levels" in tables else (resized,):
        with pytest.raises(ValueError, match="for axes of 20 and 30"):
            function(samples, *axes)


@has_library
def test_threads_do_not_meet():
    pictures = [drawn("u2", (300 + 10 * number, 500 - 10 * number), number) for number in range(8)]
    axes = [[Axis("skimage", length, 64) for length in picture.shape] for picture in pictures]
    alone = [
        resized(SampleBuffer(picture), *pair).image
        for picture, pair in zip(pictures, axes, strict=True)
    ]
    differing: list[int] = []

    def repeat(number: int) -> None:
        again = (resized(SampleBuffer(pictures[number]), *axes[number]).image for _ in range(30))
        differing.extend(number for image in again if not np.array_equal(image, alone[number]))

    threads = [threading.Thread(target=repeat, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert differing == []


@has_library
@pytest.mark.parametrize("recipe", RECIPES)
@pytest.mark.parametrize("dtype", RANGES)
def test_without_torch_it_is_the_same_to_the_bit(recipe, dtype):
    """prepare_batch always goes through torch.

    Sides that are no whole vectors, crops and clamps included.
    """
    bits = 8 if dtype.endswith("1") else 12
    given = InputSpec.from_mapping({"recipe": recipe})
    for shape in ((611, 503), (300, 401)):
        array = (drawn(dtype, shape) >> (0 if bits == 8 else 4)).clip(
            0, 127 if "rsna" in recipe else None
        )  # what none refuses
        stored = StoredValues(
            array, bits, is_signed=dtype.startswith("i"), is_monochrome1=recipe < "m"
        )
        wanted = prepare_batch([stored], given)[0].numpy()
        made = prepare_array(stored, given)
        assert made.dtype == wanted.dtype
        assert made.tobytes() == wanted.tobytes()
        assert (
            recipe != "torchxrayvision_224"
            or prepared(stored, given) is not None
            or not compiled.has_halves()
        ), "it was meant to be used"


WITHOUT = """
import sys, pathlib
from hilum_preprocessing.resize import compiled, library
library.PATH = pathlib.Path("/nowhere/resize.so")
import numpy as np
from tests.unit.preprocessing.resize.test_preprocessing_compiled import tensors
np.savez(sys.argv[1], *tensors())
"""


def tensors() -> list[np.ndarray]:
    """Of three recipes: floats in two sizes, and whole grey levels; then of a resize of floats."""
    made = []
    for recipe in ("torchxrayvision_224", "chexpert_320", "vit_imagenet_224"):
        spec = InputSpec.from_mapping({"recipe": recipe})
        for dtype in ("u1", "u2", "i2"):
            bits = 8 if dtype == "u1" else 12
            array = drawn(dtype, (611, 503)) >> (0 if dtype == "u1" else 4)
            made.append(
                prepare_stored(
                    StoredValues(array, bits, is_signed=dtype == "i2", is_monochrome1=False), spec
                )
                .float()
                .numpy()
            )
    picture = torch.from_numpy(
        np.random.default_rng(3).uniform(-1024, 1024, (333, 257)).astype(np.float32)
    )
    return [
        *made,
        resize(pixels_of(picture), Resize(48, 40, kernel="skimage", clip_to_input=True)).numpy(),
    ]


def test_a_reading_does_not_depend_on_whether_somebody_had_a_compiler(tmp_path):
    """Another process, in which the library is nowhere.

    Within what fp16 rounds, and whole grey levels to the bit.
    """
    subprocess.run(
        [sys.executable, "-c", WITHOUT, tmp_path / "without.npz"],
        check=True,
        cwd=Path(__file__).parents[4],
    )
    with np.load(tmp_path / "without.npz") as without:
        apart = [
            float(np.abs(here - there).max())
            for here, there in zip(tensors(), without.values(), strict=True)
        ]
    assert max(apart[:6]) <= 1.0, "a step of fp16 at 1024"
    assert apart[6:9] == [0.0, 0.0, 0.0]
    assert apart[9] < 1e-3


@pytest.mark.parametrize(
    "picture",
    [pixels_of(torch.ones(40, 50)), pixels_of(torch.ones(40, 50, dtype=torch.uint8))],
    ids=["f4", "u1"],
)
def test_sums_of_a_flat_picture_are_flat(picture):
    assert torch.allclose(resize(picture, Resize(7, 9, kernel="pil_bilinear_aa")), torch.ones(7, 9))


def library_of(folder: Path, text: str) -> Path:
    """What the hook makes of this source."""
    source = folder / "resize.c"
    source.write_text(text)
    assert compile_library(source) is None
    return source.with_suffix(".so")


needs_compiler = pytest.mark.skipif(not any(map(shutil.which, COMPILERS)), reason="no C compiler")
NOWHERE = """
import pathlib
from hilum_preprocessing.resize import library
library.PATH = pathlib.Path("/nowhere/resize.so")
from hilum.settings import Settings
from hilum.supervisor.checks.doctor import examine
from hilum.processes.analyser import warn_of_slow_resizes
warn_of_slow_resizes()
print([check.detail for check in examine(Settings()) if check.name == "resize"])
"""


def test_people_are_told_that_it_is_missing(tmp_path):
    """In the analyser's log and by `hilum check`: nothing else would show it."""
    said = subprocess.run(
        [sys.executable, "-c", NOWHERE], capture_output=True, text=True, check=True, cwd=tmp_path
    )
    assert "resize_not_compiled" in said.stdout + said.stderr
    assert "['by torch, which takes three times as long: resize.so cannot be loaded" in said.stdout


@needs_compiler
@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ("#define INTERFACE 5 ", "#define INTERFACE 4 ", "another version of Hilum"),
        ("sums[j] += a * rows[0][j]", "sums[j] -= a * rows[0][j]", "computes wrong"),
        ("most = in[j] > most", "most = in[j] < most", "computes wrong"),
        ("lows += x[t] * low[t]", "lows += x[t] * high[t]", "computes wrong"),
        ("_mm256_slli_epi32(highs, HALF_BITS)", "_mm256_slli_epi32(highs, 10)", "computes wrong"),
        ("* entries + in[j + k]]++", "* entries + in[j]]++", "computes wrong"),
        ("place -= upper[high]", "place -= upper[0]", "computes wrong"),
        ("s[4]), folded(s[1], s[5])", "s[4]), folded(s[5], s[1])", "computes wrong"),
        ("void hilum_resize(", "void other(", "cannot be loaded"),
    ],
)
def test_a_library_that_is_not_ours_or_wrong_is_not_used(before, after, said, tmp_path):
    text = SOURCE.read_text()
    assert before in text
    is_used, how = verdict_on(quick_library(tmp_path / "resize.so", text.replace(before, after)))
    assert not is_used
    assert said in how


@needs_compiler
def test_one_without_mistakes_is_used_whatever_the_optimisation(tmp_path):
    """So it is for its mistakes that none of the above is used."""
    assert verdict_on(quick_library(tmp_path / "resize.so", SOURCE.read_text())) == USED


@needs_compiler
def test_other_processors_take_the_plain_loops(tmp_path):
    """On known pictures, compared with numpy."""
    plain, library = "#define PLAIN\n" + SOURCE.read_text(), tmp_path / "resize.so"
    assert verdict_on(quick_library(library, plain)) == USED
    _, how = verdict_on(quick_library(library, plain.replace("* HALF + lows", "* HALF - lows")))
    assert "computes wrong" in how


@needs_compiler
def test_the_hook_compiles_and_replaces(tmp_path):
    library = library_of(tmp_path, SOURCE.read_text())
    mapped = ctypes.CDLL(str(library))
    assert verdict_on(library) == USED
    inode = library.stat().st_ino
    library_of(tmp_path, SOURCE.read_text())
    assert library.stat().st_ino != inode, "a process that runs keeps the old one"
    assert mapped.hilum_resize_interface() > 0
    assert [path.name for path in tmp_path.iterdir() if path.suffix != ".c"] == ["resize.so"]


def test_without_a_compiler_there_is_no_library_and_a_reason(tmp_path):
    source = tmp_path / "resize.c"
    source.write_text("int broken(")
    source.with_suffix(".so").write_text("an old one")
    assert "no C compiler" in str(compile_library(source, {"PATH": str(tmp_path)}))
    assert not source.with_suffix(".so").exists()
    assert "No such file" in str(compile_library(source, {"CC": str(tmp_path / "cc")}))
    is_used, how = verdict_on(source.with_suffix(".so"))
    assert not is_used
    assert how.startswith("by torch")


@needs_compiler
def test_what_the_compiler_says_is_passed_on(tmp_path):
    source = tmp_path / "resize.c"
    source.write_text("int broken(")
    assert "error" in str(compile_library(source))
    assert [path.name for path in tmp_path.iterdir()] == ["resize.c"]


GUARDED = """
import pathlib, sys
import numpy as np
from hilum_preprocessing.resize import compiled
from hilum_preprocessing import StoredValues, look
from hilum_preprocessing.resize import library
from hilum_preprocessing.resize.axes import Axis, Grid
library.PATH = pathlib.Path(sys.argv[1])
library, how = compiled.loaded()
assert library is not None, how
rng = np.random.default_rng(0)
kernels = ["skimage", "cv2_area", "pil_bilinear_aa", "pil_lanczos", "cv2_linear", "torch_bicubic", "nearest"]
for _ in range(400):
    grids = [Grid(int(step)) for step in rng.integers(1, 4, 2)]
    lengths = [(int(rng.integers(1, most)), int(rng.integers(1, 70))) for most in (90, 800)]
    axes = [Axis(rng.choice(kernels), *pair, grid) for pair, grid in zip(lengths, grids)]
    array = rng.integers(0, 120, [axis.length for axis in axes]).astype(rng.choice(["u1", "i1", "u2", "i2", "f4"]))
    lookup = np.zeros(256 ** array.itemsize, "f4") if array.dtype != np.float32 and rng.integers(2) else None
    compiled.extremes(array)
    made = compiled.resized(compiled.SampleBuffer(array, lookup=lookup), *axes)
    if compiled.has_halves():
        compiled.into_halves(made, (2.0, 1.0), (-1000.0, 1000.0))
    if array.dtype != np.float32:
        levels = None if array.dtype == np.uint8 else np.zeros(256 ** array.itemsize, "u1")
        assert compiled.resized_whole(compiled.SampleBuffer(array, levels=levels), *axes) is not None
        compiled.counts(array)
        bits = 8 * array.itemsize
        look(StoredValues(array, bits, is_signed=array.dtype.kind == "i", is_monochrome1=bool(rng.integers(2))))
print("nothing outside")
"""


@needs_compiler
def test_it_stays_within_its_arrays(tmp_path):
    """GCC's sanitizers look at every access.

    A picture's shape comes from outside, and this is C.
    """
    require_no_access_outside(SOURCE, tmp_path / "resize.so", "-c", GUARDED)


def test_a_full_grid_is_the_default():
    assert Axis("nearest", 9, 3).grid == FULL
    assert Axis("nearest", 9, 3).length == 9
