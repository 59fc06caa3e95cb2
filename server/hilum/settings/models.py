"""Settings of releases, of Triton, and of decoding and inference."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field, field_validator, model_validator

from hilum.settings.fields import GrpcAddress, Section, printable_token
from hilum.settings.peers.tls import TlsClient


class Models(Section):
    """Which releases read the images."""

    manifests: Path | None = Field(
        None,
        description=(
            "Folder of `<release>/manifest.toml`; default: model_repository of the installation."
        ),
    )
    built: Path | None = Field(
        None, description="Folder of the built Triton trees; default: <state_dir>/models."
    )
    releases: tuple[str, ...] = Field(
        ("densenet121_untrained@1",),
        min_length=1,
        description="Releases (name@version) that read every image.",
    )


class Triton(TlsClient):
    """Where the models run."""

    url: GrpcAddress = Field(
        "",
        description=(
            "gRPC address host:port of a Triton outside of Hilum; empty: Hilum starts the"
            " embedded one."
        ),
    )
    urls: tuple[GrpcAddress, ...] = Field(
        (),
        description=(
            "Several addresses, instead of url. Batches are spread over the Tritons that"
            " answer; one that is away is left out."
        ),
    )
    shared_memory: bool = Field(
        default=True,
        description=(
            "Batches go by shared memory to the embedded Triton, and to others at a loopback"
            " address if they can map it."
        ),
    )
    token: str = Field(
        "",
        description=(
            "tls: bearer token, sent with each call, for a proxy before it. Give it by"
            " HILUM_TRITON__TOKEN."
        ),
        repr=False,
    )
    token_file: Path | None = Field(
        None,
        description="tls: file that holds the token, instead of token; read when a process starts.",
    )
    other_models: tuple[str, ...] = Field(
        (),
        description=(
            "Other models that your Triton serves as well. Any further model is a problem"
            " that readiness names."
        ),
    )
    start_timeout_seconds: float = Field(
        120.0, gt=0, description="Limit for the embedded server to become ready."
    )
    exit_timeout_seconds: float = Field(
        8.0, gt=0, description="Limit for the embedded server to finish its queue at shutdown."
    )

    @property
    def addresses(self) -> tuple[str, ...]:
        """Tritons outside of Hilum; empty: the embedded one."""
        return self.urls or ((self.url,) if self.url else ())

    @model_validator(mode="after")
    def _one_way_to_name_them(self) -> Triton:
        if self.url and self.urls:
            raise ValueError("give url or urls, not both")
        if "" in self.urls or len(set(self.urls)) < len(self.urls):
            raise ValueError("urls names an address twice, or none")
        return self

    @field_validator("token")
    @classmethod
    def _token_can_be_sent(cls, value: str) -> str:
        return printable_token(value)

    @model_validator(mode="after")
    def _tokens_go_by_tls(self) -> Triton:
        if self.tls and not self.addresses:
            raise ValueError(
                "tls needs url or urls: the embedded Triton is reached by a socket of its own"
            )
        if (self.token or self.token_file) and not self.tls:
            raise ValueError(
                "token and token_file need tls = true: others would read the token on the way"
            )
        if self.token and self.token_file:
            raise ValueError("give token or token_file, not both")
        return self


class Analyse(Section):
    """Decoding, preprocessing and inference."""

    processes: int = Field(1, ge=1, le=16, description="Analyser processes (one a GPU).")
    device: str = Field(
        "cpu",
        pattern=r"^(cpu|cuda(:\d+)?)$",
        description="Where tensors are prepared: cpu, cuda or cuda:N.",
    )
    decode_processes: int = Field(
        0,
        ge=0,
        le=256,
        description="Decode processes of one analyser; 0: one fewer than the cores, at least one.",
    )
    placement: Literal["worker", "device"] = Field(
        "worker",
        description=(
            "The processes that prepare tensors. worker: each decode process, its images"
            " only; device: the analyser, on `device`, from stored values that decode"
            " processes leave in shared memory (for a GPU)."
        ),
    )
    slot_bytes: int = Field(
        64 << 20,
        ge=1 << 16,
        description=(
            "Shared memory of an image on its way out of a decode process; it is taken when"
            " touched. Larger images take a pipe."
        ),
    )
    drop_page_cache: bool = Field(
        default=True,
        description=(
            "Read a file that is not in memory past the page cache, and give the memory that holds"
            " one back to the system once it is decoded; false: where releases are read at"
            " different times and the archive's disk is slow."
        ),
    )
    decode_seconds: float = Field(
        60.0,
        gt=0,
        le=100,
        description="Limit for one image; a decode process that takes longer is ended.",
    )
    batches_in_flight: int = Field(
        2, ge=1, le=16, description="Batches on their way to each Triton at once, for each release."
    )
    deadline_seconds: float = Field(30.0, gt=0, description="Limit for one inference request.")
    maximum_pixels: int = Field(
        100_000_000,
        ge=1,
        description=(
            "Images with more pixels are not analysed (too_large). The intermediate"
            " images of a recipe have a limit of their own: docs/models/preprocessing.md."
        ),
    )
    canary_seconds: float = Field(
        15.0,
        gt=0,
        description="A known image is sent through each release this often; readiness rests on it.",
    )
