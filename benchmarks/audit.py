"""How long it takes to know whether nodes differ: our audit beside its peers, on a running site."""

from __future__ import annotations

import sys
from pathlib import Path

from measure import command, compare, report

ROUNDS = 5


def main() -> None:
    site = sys.argv[1] if len(sys.argv) > 1 else "inventories/lab"
    programs = Path(sys.executable).parent
    known = "-o UserKnownHostsFile={{ ssh_known_hosts_file }} -o StrictHostKeyChecking=yes"
    ansible = [
        str(programs / "ansible"), "-i", site, "all", "-m", "ansible.builtin.setup", "--forks", "20",
        "-e", f"ansible_ssh_common_args='{known}'", "-e", "ansible_pipelining=true",
    ]  # fmt: skip
    goldsmith = str(programs / "goldsmith")
    times = compare(
        {
            "goldsmith audit": command([goldsmith, "audit", site], codes=(0, 1, 2)),
            "goldsmith deploy --check": command([goldsmith, "deploy", site, "--check"], codes=(0, 2)),
            # it gathers facts that judge nothing yet: a lower bound for an audit by Ansible
            "ansible -m setup": command(ansible),
        },
        ROUNDS,
    )
    print(report(times))


if __name__ == "__main__":
    main()
