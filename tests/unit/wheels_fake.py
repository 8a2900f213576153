"""Fake wheels, built on the fly, and a package index of files over them: nothing of it comes from anywhere."""

from __future__ import annotations

import base64
import zipfile
from collections.abc import Iterable, Mapping
from hashlib import sha256
from pathlib import Path

from goldsmith.lock.wheels import resolve_environment
from goldsmith.model.lock import LockedEnvironment
from goldsmith.model.stack import Environment
from goldsmith.yamlfile import Places

PLACES = Places(
    Path("image.yml"),
    {("python", "train", "requirements", number): (Path("image.yml"), 10 + number) for number in (0, 1)},
)


def wheel(
    folder: Path, name: str, version: str, tag: str = "py3-none-any", needs: Iterable[str] = (),
    files: Mapping[str, str] | None = None,
) -> Path:  # fmt: skip
    """A small wheel: a package with its version in it, and what it needs. The same bytes every time."""
    module = name.replace("-", "_")
    info = f"{module}-{version}.dist-info"
    content = {
        f"{module}/__init__.py": f"__version__ = {version!r}\n",
        **(files or {}),
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
        + "".join(f"Requires-Dist: {one}\n" for one in needs),
        f"{info}/WHEEL": f"Wheel-Version: 1.0\nGenerator: fake\nRoot-Is-Purelib: true\nTag: {tag}\n",
    }
    record = "".join(f"{path},sha256={_digest(text)},{len(text.encode())}\n" for path, text in content.items())
    path = folder / f"{module}-{version}-{tag}.whl"
    folder.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w") as archive:
        for member, text in {**content, f"{info}/RECORD": f"{record}{info}/RECORD,,\n"}.items():
            archive.writestr(zipfile.ZipInfo(member), text)
    return path


def _digest(text: str) -> str:
    return base64.urlsafe_b64encode(sha256(text.encode()).digest()).decode().rstrip("=")


def index(root: Path, wheels: Iterable[Path], yanked: Iterable[str] = ()) -> str:
    """A package index of these wheels (PEP 503, PEP 592); its address."""
    pages: dict[str, list[str]] = {}
    for path in wheels:
        digest = sha256(path.read_bytes()).hexdigest()
        note = ' data-yanked="broken"' if path.name in yanked else ""
        project = path.name.split("-")[0].replace("_", "-").lower()
        pages.setdefault(project, []).append(f'<a href="{path.as_uri()}#sha256={digest}"{note}>{path.name}</a>')
    for project, links in pages.items():
        page = root / project / "index.html"
        page.parent.mkdir(parents=True, exist_ok=True)
        page.write_text(f"<!DOCTYPE html><html><body>{'<br>'.join(links)}</body></html>")
    return root.as_uri()


def stack(folder: Path, python: str = "313") -> list[Path]:
    """torch 2.6.0 with its NCCL, and two versions of numpy; for the given Python, as the real ones are tagged."""
    return [
        wheel(folder, "torch", "2.6.0", f"cp{python}-cp{python}-manylinux1_x86_64",
              ["nvidia-nccl-cu12==2.21.5; platform_system == 'Linux'", "numpy"]),
        wheel(folder, "torch", "2.6.0", "cp39-cp39-manylinux1_x86_64"),
        wheel(folder, "nvidia-nccl-cu12", "2.21.5", "py3-none-manylinux2014_x86_64"),
        wheel(folder, "nvidia-nccl-cu12", "2.21.5", "py3-none-manylinux2014_aarch64"),
        wheel(folder, "numpy", "2.1.0"),
        wheel(folder, "numpy", "2.2.4"),
        wheel(folder, "numpy", "2.2.4", f"cp{python}-cp{python}-manylinux_2_17_x86_64.manylinux2014_x86_64"),
        wheel(folder, "numpy", "2.2.4", f"cp{python}-cp{python}-musllinux_1_2_x86_64"),
    ]  # fmt: skip


def resolved(
    address: str, cache: Path, *requirements: str, previous: LockedEnvironment | None = None,
    upgrade: Iterable[str] | None = (), python: str = "3.13",
) -> LockedEnvironment:  # fmt: skip
    """What the index at `address` gives for these requirements, on Debian 13."""
    environment = Environment(python=python, requirements=list(requirements), index=address)
    return resolve_environment(
        "train", environment, "debian", "trixie", "amd64", cache, previous,
        None if upgrade is None else list(upgrade), PLACES, lambda _: None,
    )  # fmt: skip
