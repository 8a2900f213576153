"""Machines under QEMU: a disk of goldsmith's booted as it would be on a node, reached over ssh, and ended.

with running.start(machine, folder) as one:
    login = reach.login(one, folder)
    login.run(["uname", "-r"])
"""
