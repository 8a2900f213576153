"""One command on a node: over our pyinfra connector (TCP_NODELAY set) and over pyinfra's own."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from gevent import monkey

monkey.patch_all()  # as pyinfra's command line does

from measure import compare, report  # noqa: E402
from pyinfra.api import Config, Inventory, State, StringCommand  # noqa: E402
from pyinfra.connectors.ssh import SSHConnector  # noqa: E402

from goldsmith.converge.connectors.ssh import GoldsmithConnector  # noqa: E402
from goldsmith.inventory.site import load_site  # noqa: E402

ROUNDS, EXECS = 10, 20


def connector(cls: type[Any], site: Path, name: str) -> Any:
    """A connected connector of the class, to the site's node."""
    ssh = load_site(site).node(name).ssh
    assert ssh is not None
    data = {
        "goldsmith_site": str(site), "ssh_hostname": ssh.address, "ssh_port": ssh.port, "ssh_user": ssh.user,
        "ssh_key": ssh.key_file, "ssh_known_hosts_file": ssh.known_hosts, "ssh_strict_host_key_checking": "yes",
    }  # fmt: skip
    inventory = Inventory(([(name, data)], {}))
    host = next(iter(inventory))
    host.connector_cls = cls
    State(inventory, Config())
    host.connector.connect()
    return host.connector


def main() -> None:
    site = Path(sys.argv[1] if len(sys.argv) > 1 else "inventories/lab").absolute()
    name = load_site(site).names[0]
    made = {"goldsmith's connector": GoldsmithConnector, "pyinfra's connector": SSHConnector}
    open_ = {label: connector(cls, site, name) for label, cls in made.items()}

    def execs(one: Any) -> None:
        for _ in range(EXECS):
            ok, _output = one.run_shell_command(StringCommand("true"), print_output=False, print_input=False)
            assert ok

    times = compare({label: lambda one=one: execs(one) for label, one in open_.items()}, ROUNDS)
    print(f"{EXECS} commands a round\n\n{report(times)}")


if __name__ == "__main__":
    main()
