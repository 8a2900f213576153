"""What the lab remembers between commands: STATE/labs/NAME/state.json, written after every change."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from goldsmith import atomic
from goldsmith.errors import GoldsmithError
from goldsmith.lab.settings import LabSettings
from goldsmith.processes import Process

# What a node's writable layer lies on: the golden image, or the base system that `deploy` converges.
Lower = Literal["golden", "base"]


class Running(BaseModel):
    """A process as it is kept in the file."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    pid: int
    start: int
    boot: str

    @property
    def process(self) -> Process:
        return Process(self.pid, self.start, self.boot)

    @classmethod
    def of(cls, process: Process) -> Running:
        return cls(pid=process.pid, start=process.start, boot=process.boot)


class NodeState(BaseModel):
    """lower: which; tree: the very folder below the node's writable layer. running: None once it is
    stopped.
    """

    model_config = ConfigDict(extra="forbid")
    lower: Lower
    tree: str
    running: Running | None = None


class LabState(BaseModel):
    """image: name and digest of the rootfs that the golden nodes lie on. trees: lower → folder."""

    model_config = ConfigDict(extra="forbid")
    schema_version: Literal[1] = 1
    image: str = ""
    digest: str = ""
    trees: dict[Lower, str] = {}
    pool: Running | None = None
    nodes: dict[str, NodeState] = {}


def load(settings: LabSettings) -> LabState:
    """The lab's state; an empty one where there is no lab."""
    path = settings.state / "state.json"
    try:
        return LabState.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        return LabState()
    except (OSError, ValidationError) as error:
        raise GoldsmithError(
            f"the lab's state can't be read: {error}",
            where=str(path),
            hint="`goldsmith lab down --remove` finds the lab's processes without it and starts afresh",
        ) from None


def save(settings: LabSettings, state: LabState) -> None:
    atomic.write(settings.state / "state.json", state.model_dump_json(indent=1) + "\n")
