"""QMP, with a fake QEMU at the other end of the socket."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable

import pytest

from goldsmith.vm.qmp import Qmp, QmpError

GREETING = {"QMP": {"version": {"qemu": {"major": 7, "minor": 2, "micro": 22}}, "capabilities": ["oob"]}}


def fake_qemu(answers: Callable[[str], list[object]], greeting: object = GREETING) -> Qmp:
    """A Qmp whose other end says `greeting` and then, to each command, what `answers` has for it."""
    ours, theirs = socket.socketpair()

    def serve() -> None:
        with theirs, theirs.makefile("rwb") as file:
            file.write((json.dumps(greeting) + "\r\n").encode())
            file.flush()
            for line in file:
                for answer in answers(json.loads(line)["execute"]):
                    file.write(answer if isinstance(answer, bytes) else (json.dumps(answer) + "\r\n").encode())
                file.flush()

    threading.Thread(target=serve, daemon=True).start()
    return Qmp(ours, seconds=2)


def test_greeting_and_a_command() -> None:
    said: list[str] = []

    def answers(command: str) -> list[object]:
        said.append(command)
        return [{"return": {"status": "running"} if command == "query-status" else {}}]

    qmp = fake_qemu(answers)
    assert qmp.greet() == "7.2.22"
    assert qmp.status() == "running"
    assert said == ["qmp_capabilities", "query-status"]


def test_events_in_between_are_kept() -> None:
    stop = {"event": "STOP", "timestamp": {"seconds": 1}}
    qmp = fake_qemu(lambda command: [stop, {"return": {"status": "internal-error"}}])
    qmp.greet()
    assert qmp.status() == "internal-error"
    assert [one["event"] for one in qmp.events] == ["STOP", "STOP"]


def test_a_refusal_says_why() -> None:
    qmp = fake_qemu(lambda _: [{"error": {"class": "DeviceNotFound", "desc": "Device 'n9' not found"}}])
    qmp._read()
    with pytest.raises(QmpError, match="Device 'n9' not found"):
        qmp.execute("device_del", id="n9")


def test_silence_has_an_end() -> None:
    qmp = fake_qemu(lambda _: [])
    qmp._read()
    qmp._socket.settimeout(0.2)
    with pytest.raises(QmpError, match="doesn't answer"):
        qmp.status()


@pytest.mark.parametrize("greeting", [{"hello": 1}, [1, 2], {"QMP": None}])
def test_what_is_not_qmp(greeting: object) -> None:
    with pytest.raises(QmpError, match="not QMP"):
        fake_qemu(lambda _: [], greeting).greet()


def test_rubbish_and_an_end() -> None:
    qmp = fake_qemu(lambda _: [b"\xff\xfe no json\n"])
    qmp._read()
    with pytest.raises(QmpError, match="not QMP"):
        qmp.status()
    ours, theirs = socket.socketpair()
    theirs.close()
    with pytest.raises(QmpError, match="is gone"):
        Qmp(ours).greet()
