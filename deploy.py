"""What a deploy does to a host: `pyinfra inventories/SITE.py deploy.py`.

Which roles, in which order: the image's, as images/NAME/image.yml lists them. The same steps bake the image.
"""

from goldsmith.converge import before_packages, environments, packages, read_back, role, this_plan

plan = this_plan()  # this host: its data, its image's lock, its roles and all that they promise

before_packages(plan)  # apt's sources and holds on automatic upgrades, masks, module blacklists
packages(plan)  # one transaction: simulated, refused if it surprises, held
environments(plan)  # Python environments, from the pool's wheels

for one in plan.roles:
    role(plan, one)  # its files, units, modules and sysctls, then its own deploy.py

read_back(plan)  # nothing may be left to change
