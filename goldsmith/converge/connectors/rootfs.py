"""The pyinfra connector for a root file system: `@rootfs/PATH`. It works inside the tree, never from outside."""

from __future__ import annotations

from collections.abc import Iterator
from io import IOBase
from pathlib import Path
from typing import Any

from pyinfra.api.command import StringCommand
from pyinfra.api.exceptions import ConnectError
from pyinfra.api.util import get_file_io
from pyinfra.connectors.base import BaseConnector
from pyinfra.connectors.util import CommandOutput, OutputLine, make_unix_command_for_host

from goldsmith.errors import GoldsmithError
from goldsmith.fleet.rootfs import run_in_tree
from goldsmith.process import Done

# A package transaction of a whole image; a single command asks for less with `_timeout`.
TIMEOUT = 3600.0
POOL_INSIDE = "/run/goldsmith-pool"


class RootfsConnector(BaseConnector):
    """Host data: goldsmith_pool, the pool's folder, is seen inside the tree at POOL_INSIDE, read-only. goldsmith_epoch,
    seconds since 1970: programs that heed SOURCE_DATE_EPOCH write it in place of the time; an initrd has it inside.
    """

    handles_execution = True

    @staticmethod
    def make_names_data(name: str) -> Iterator[tuple[str, dict[str, Any], list[str]]]:
        yield f"@rootfs/{name}", {"rootfs_tree": name}, []

    @property
    def tree(self) -> Path:
        return Path(self.host.data.rootfs_tree)

    def connect(self) -> None:
        if not (self.tree / "usr").is_dir():
            raise ConnectError(f"{self.tree} isn't a root file system: it has no usr/")
        try:
            run_in_tree(self.tree, ["/bin/true"], timeout=60, what="enter the root file system")
        except GoldsmithError as error:
            raise ConnectError(str(error)) from None

    def run_shell_command(
        self, command: StringCommand, print_output: bool = False, print_input: bool = False, **arguments: Any
    ) -> tuple[bool, CommandOutput]:
        expected = arguments.pop("_success_exit_codes", None) or [0]
        timeout = arguments.pop("_timeout", None) or TIMEOUT
        stdin = arguments.pop("_stdin", None)
        for name in ("_get_pty", "_retries", "_retry_delay", "_retry_until"):
            arguments.pop(name, None)
        line = make_unix_command_for_host(self.state, self.host, command, **arguments).get_raw_value()
        text = stdin if isinstance(stdin, str) or stdin is None else "\n".join(stdin) + "\n"
        done = self._in_tree(["/bin/sh", "-c", line], timeout=timeout, stdin=text)
        lines = [OutputLine("stdout", line) for line in done.out.splitlines()]
        lines += [OutputLine("stderr", line) for line in done.err.splitlines()]
        return done.code in expected, CommandOutput(lines)

    def put_file(
        self,
        filename_or_io: str | IOBase,
        remote_filename: str,
        remote_temp_filename: str | None = None,
        print_output: bool = False,
        print_input: bool = False,
        **arguments: Any,
    ) -> bool:
        with get_file_io(filename_or_io) as file:
            body = file.read()
        text = body.decode() if isinstance(body, bytes) else body
        # the redirection happens inside: a link in the tree stays in the tree
        done = self._in_tree(["/bin/sh", "-c", 'cat > "$1"', "sh", remote_filename], timeout=60, stdin=text)
        if done.code != 0:
            raise OSError(done.tail)
        return True

    def get_file(
        self,
        remote_filename: str,
        filename_or_io: str | IOBase,
        remote_temp_filename: str | None = None,
        print_output: bool = False,
        print_input: bool = False,
        **arguments: Any,
    ) -> bool:
        done = self._in_tree(["/bin/cat", "--", remote_filename], timeout=60, stdin=None)
        if done.code != 0:
            raise OSError(done.tail)
        with get_file_io(filename_or_io, "wb") as file:
            file.write(done.out.encode())
        return True

    def _in_tree(self, command: list[str], *, timeout: float, stdin: str | None) -> Done:
        pool = self.host.data.get("goldsmith_pool")
        binds = {Path(pool): POOL_INSIDE} if pool else {}
        epoch = self.host.data.get("goldsmith_epoch")
        env = {"SOURCE_DATE_EPOCH": str(epoch)} if epoch else {}
        what = f"in {self.tree}"
        return run_in_tree(
            self.tree, command, timeout=timeout, what=what, binds=binds, stdin=stdin, check=False, env=env
        )
