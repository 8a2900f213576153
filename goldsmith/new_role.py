"""Laying down a new role: a folder that is deployed, baked and audited as it stands."""

from __future__ import annotations

import re
import shutil
import tempfile
from pathlib import Path

import jinja2
import yaml

from goldsmith import atomic
from goldsmith.errors import GoldsmithError
from goldsmith.model.image import read_placed

_TEMPLATE = Path(__file__).parent / "role_template"


def new_role(project: Path, name: str, image: str | None) -> list[Path]:
    """Make roles/NAME from the template and, if an image is named, add it to that image's roles.

    Returns the files written. An existing role is never touched.
    """
    if not re.fullmatch(r"[a-z][a-z0-9_]*", name):
        raise GoldsmithError(
            f"{name!r} can't be a role's name", where="NAME", hint="lower-case letters, digits and underscores"
        )
    target = project / "roles" / name
    if target.exists():
        raise GoldsmithError("there is such a role already", where=str(target), hint="choose another name")
    addition = _with_role(project / "images" / image, name) if image else None
    # made beside its place and renamed: a role is there whole, or not at all
    folder = Path(tempfile.mkdtemp(prefix=f".new-{name}-", dir=project / "roles"))
    try:
        written = [_render(source, folder, name) for source in sorted(_TEMPLATE.rglob("*.j2"))]
        folder.chmod(0o755)
        folder.rename(target)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    files = [target / path.relative_to(folder) for path in written]
    if addition:
        atomic.write(*addition)
        files.append(addition[0])
    return files


def _render(source: Path, folder: Path, name: str) -> Path:
    relative = source.relative_to(_TEMPLATE)
    # the role's own template is named after it, and stays one
    path = folder / (f"templates/{name}.conf.j2" if relative.parts[0] == "templates" else relative.with_suffix(""))
    path.parent.mkdir(parents=True, exist_ok=True)
    text = jinja2.Template(source.read_text(), keep_trailing_newline=True, trim_blocks=True)
    path.write_text(text.render(name=name, title=name.replace("_", " ").capitalize()))
    return path


def _with_role(folder: Path, name: str) -> tuple[Path, str]:
    """image.yml with the role at the end of its list, everything else as it was, comments too."""
    image, places = read_placed(folder)
    path = folder / "image.yml"
    if name not in image.roles and places.file_of("roles") != path:
        raise GoldsmithError(
            "its roles are those of an image that it extends, and others may extend that one, too",
            where=places.of("roles"),
            hint=f"add {name} there by hand (IMAGE= lays the role down alone), or give {path} a list of its own",
        )
    if name in image.roles:
        return path, path.read_text()
    return path, add_to_roles(path.read_text(), name, where=str(path))


def add_to_roles(text: str, name: str, where: str) -> str:
    """Add a role to the `roles:` of an image.yml, in whichever of YAML's two ways the list is written."""
    tree = yaml.compose(text, Loader=yaml.SafeLoader)
    assert isinstance(tree, yaml.MappingNode), "read_image has read it"
    roles = next(value for key, value in tree.value if key.value == "roles")
    if not isinstance(roles, yaml.SequenceNode) or not roles.value:
        raise GoldsmithError("the list of roles is empty", where=where, hint=f"add {name} by hand")
    last = roles.value[-1]
    if roles.flow_style:
        end = last.end_mark.index
        return f"{text[:end]}, {name}{text[end:]}"
    lines = text.splitlines()
    lines.insert(last.end_mark.line + 1, f"{' ' * roles.start_mark.column}- {name}")
    return "\n".join(lines) + "\n"
