"""The interpreter of `make image-proof` on a Dockerfile of a few lines: layers, users, mounts."""

from __future__ import annotations

from pathlib import Path

import pytest

from load_tests.proof.container import inventory
from load_tests.proof.container.build import Builder, Image
from load_tests.proof.container.context import Context
from load_tests.proof.container.dockerfile import read
from load_tests.proof.container.root import Root, StepFailed, User
from load_tests.proof.small_disk import may_mount

pytestmark = pytest.mark.skipif(not may_mount(), reason="needs root, to mount overlays")
TEXT = """
FROM any AS one
ARG WORD=hello
WORKDIR /made
COPY kept ./
RUN echo "$WORD" > word && cat a.txt >> word && date +%N >> word
FROM any
COPY --from=one /made /result
ENV PATH=/result:$PATH
USER 7:7
ENTRYPOINT ["cat"]
CMD ["/result/word"]
"""


@pytest.fixture
def base(tmp_path: Path) -> Image:
    """A root that has this machine's /usr, by a mount."""
    layer = tmp_path / "base"
    for name in ("usr", "proc", "dev", "tmp", "etc"):
        (layer / name).mkdir(parents=True)
    for name in ("bin", "sbin", "lib", "lib64"):
        (layer / name).symlink_to(f"usr/{name}")
    return Image([layer], {"PATH": "/usr/bin:/usr/sbin"})


@pytest.fixture
def context(tmp_path: Path) -> Context:
    (tmp_path / "context/kept").mkdir(parents=True)
    (tmp_path / "context/kept/a.txt").write_text("content\n")
    return Context(tmp_path / "context", ())


def build(base: Image, context: Context, work: Path, text: str = TEXT) -> Image:
    builder = Builder(
        work,
        work.with_name("kept"),
        context,
        base,
        mounts={Path("/usr"): "/usr"},
        say=lambda _: None,
    )
    return builder.build(read(text))


def word(image: Image) -> list[str]:
    return (image.layers[-1] / "result/word").read_text().splitlines()


def mounts() -> list[str]:
    return Path("/proc/self/mountinfo").read_text().splitlines()


def test_a_stage_gets_what_the_stage_before_has_made(base: Image, context: Context, tmp_path: Path):
    image = build(base, context, tmp_path / "work")
    assert word(image)[:2] == ["hello", "content"]
    assert (image.user, image.entrypoint, image.command) == ("7:7", ["cat"], ["/result/word"])
    assert image.environment["PATH"] == "/result:/usr/bin:/usr/sbin"
    assert list(image.sizes) == ["COPY --from=one /made /result"]
    assert not list((image.layers[-1]).glob("tmp/*")), "mounts leave nothing in a layer"


def test_a_layer_is_made_again_only_where_its_instruction_or_its_files_changed(
    base: Image, context: Context, tmp_path: Path
):
    first = word(build(base, context, tmp_path / "first"))
    again = word(build(base, context, tmp_path / "again"))
    (context.folder / "kept/a.txt").write_text("other\n")
    changed = word(build(base, context, tmp_path / "changed"))
    assert again == first
    assert changed[1] == "other"


def test_the_user_of_a_container_has_no_capability_and_writes_only_where_it_may(
    base: Image, context: Context, tmp_path: Path
):
    image = build(base, context, tmp_path / "work")
    volume = tmp_path / "volume"
    volume.mkdir()
    volume.chmod(0o777)
    root = Root(
        tuple(image.layers),
        tmp_path / "work/place",
        {Path("/usr"): "/usr", volume: "/result"},
        writable=frozenset({"/result"}),
    )
    bare = User(7, 7, is_bare=True)
    words = (
        "id -u; sed -n 's/CapEff:.//p' /proc/self/status; touch /x /etc/x || touch /result/y /tmp/y"
    )
    said = root.run(["sh", "-c", words], image.environment, user=bare)
    assert said.splitlines() == ["7", "0" * 16]
    assert [path.name for path in volume.iterdir()] == ["y"]


def test_what_an_image_should_not_have_is_found(base: Image, context: Context, tmp_path: Path):
    steps = (
        "RUN mkdir -p /opt/bin && touch /opt/bin/x86_64-linux-gnu-g++-12 /opt/bin/cc /opt/bin/cat"
        " && touch /opt/su /opt/open /opt/own && chmod 4755 /opt/su && chmod o+w /opt/open"
        " && chown 7 /opt/own"
    )
    image = build(base, context, tmp_path / "work", f"FROM any\n{steps}\n")
    root = Root(tuple(image.layers), tmp_path / "work/place", {Path("/usr"): "/usr"})
    found = inventory.compilers(root, image)
    assert sorted(found) == ["/opt/bin/cc", "/opt/bin/x86_64-linux-gnu-g++-12"]
    assert inventory.setuid_files(root, image) == ("/opt/su",)
    assert sorted(inventory.writable(root, image, User(7, 7))) == ["/opt/open", "/opt/own"]


def test_a_step_that_fails_says_so_and_leaves_no_mount(
    base: Image, context: Context, tmp_path: Path
):
    before = mounts()
    with pytest.raises(StepFailed, match="ended with 3"):
        build(base, context, tmp_path / "work", "FROM any\nRUN exit 3\n")
    assert mounts() == before
