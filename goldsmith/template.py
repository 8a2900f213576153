"""Templates of roles: Jinja that refuses an undefined name, found beside the role, not in the working directory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jinja2

from goldsmith.errors import GoldsmithError


def template(path: Path, **values: Any) -> str:
    """The text of a template file, e.g. `template(Path(__file__).parent / "templates/x.j2", node=node)`.

    Raises GoldsmithError with file and line for an undefined name or a syntax error.
    """
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(path.parent),
        undefined=jinja2.StrictUndefined,
        keep_trailing_newline=True,
        trim_blocks=True,
        lstrip_blocks=True,
        autoescape=False,  # configuration files, not HTML
    )
    try:
        return environment.get_template(path.name).render(**values)
    except jinja2.TemplateSyntaxError as error:
        raise GoldsmithError(f"template: {error.message}", where=f"{path}:{error.lineno}") from None
    except jinja2.TemplateNotFound:
        raise GoldsmithError("there is no such template", where=str(path)) from None
    except jinja2.UndefinedError as error:
        hint = "declare the variable in the role's meta/argument_specs.yml, with a default"
        raise GoldsmithError(f"template: {error.message}", where=str(path), hint=hint) from None
    except Exception as error:  # whatever an expression in it does
        raise GoldsmithError(f"template: {type(error).__name__}: {error}", where=str(path)) from None
