"""The pyinfra inventory of one root file system that becomes an image; goldsmith.converge.run sets the environment."""

import os

all = [  # pyinfra finds its groups by name
    (
        f"@rootfs/{os.environ['GOLDSMITH_TREE']}",
        {
            "goldsmith_image": os.environ["GOLDSMITH_IMAGE"],
            "goldsmith_project": os.environ["GOLDSMITH_PROJECT"],
            "goldsmith_pool": os.environ["GOLDSMITH_POOL"],
            "goldsmith_epoch": os.environ["GOLDSMITH_EPOCH"],
            "goldsmith_whole": os.environ["GOLDSMITH_LAYER"] != "packages",
        },
    )
]
