"""What `goldsmith lock` refuses: a driver whose module is known not to build for the image's kernel (lint's rule K1).

A build would find that out, minutes later. Nothing else of lint is asked here: most of its rules are about what may
work, this one is about what somebody has seen fail.
"""

from __future__ import annotations

import os
from pathlib import Path

from goldsmith.errors import Refused
from goldsmith.model.finding import Severity
from goldsmith.model.image import Image
from goldsmith.model.lock import Lock
from goldsmith.yamlfile import Places


def require_buildable(image: Image, lock: Lock | None, places: Places, directory: Path) -> None:
    """Raise Refused if kernel and driver are a pair that doesn't build. lock: whose versions count; without one those
    that image.yml pins."""
    from goldsmith.lint.engine import severity_of
    from goldsmith.lint.facts import packaged_facts
    from goldsmith.lint.rules.kernel import bad_pairs, good_pairs
    from goldsmith.lint.subject import Subject

    facts = packaged_facts()
    for hit in bad_pairs(Subject(image, lock, facts)):
        if severity_of(hit) is not Severity.FAIL:
            continue
        release = image.kernel.release if image.kernel else ""
        known = good_pairs(facts, release)
        said = "; ".join(dict.fromkeys(fact.source for fact in hit.facts))
        raise Refused(
            f"{hit.what} ({hit.rule.id}, by {said})",
            where=os.path.normpath(places.of(*hit.field)) if hit.field else str(directory / "image.lock"),
            hint="\n  ".join([
                *known, f"otherwise {hit.remedy}, or a patch for the module under dkms.patches; "
                "to lock it nevertheless: --allow-known-bad",
            ]),
        )  # fmt: skip
