"""What we take from ansible-core's insides gives what `ansible-inventory --list` gives."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from goldsmith import GoldsmithError
from goldsmith.inventory.ansible import Inventory, validate

pytestmark = pytest.mark.contract
SITE = Path(__file__).parents[1] / "data/site"
VAULT = SITE / "vault-password-fake.txt"


def ansible_says() -> Any:
    ansible = Path(sys.executable).with_name("ansible-inventory")
    command = [ansible, "-i", SITE, "--list", "--vault-password-file", VAULT]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    return json.loads(done.stdout)


def test_same_hosts_groups_and_variables() -> None:
    theirs = ansible_says()
    ours = Inventory(SITE, VAULT)
    assert sorted(ours.names) == sorted(theirs["_meta"]["hostvars"])
    for group, hosts in ours.groups().items():
        expected = set(theirs[group].get("hosts", []))
        for child in theirs[group].get("children", []):
            expected |= set(theirs[child]["hosts"])
        assert set(hosts) == expected, group
    for name in ours.names:
        variables = dict(ours.host(name).variables)
        for ours_only in ("inventory_dir", "inventory_hostname"):
            variables.pop(ours_only)
        raw = theirs["_meta"]["hostvars"][name]
        # ansible-inventory prints templates as they stand; what has none must be the same
        assert set(variables) == set(raw)
        for key, value in raw.items():
            if "{{" not in json.dumps(value):
                assert variables[key] == value, (name, key)


def test_templates_are_per_host_and_values_plain() -> None:
    host = Inventory(SITE, VAULT).host("node03")
    assert host.variables["ansible_host"] == "10.0.0.3"
    assert host.variables["nested"] == {"list": [1, "two", 4], "map": {"a": "03"}}
    for value in (host.variables["goldsmith_image"], host.variables["nested"], host.variables["number"]):
        assert type(value) in (str, dict, int)
    assert host.variables["yes_"] is True and host.variables["nothing"] is None


def test_origins_name_file_and_line() -> None:
    origins = Inventory(SITE, VAULT).host("node03").origins
    assert origins["gpus"].endswith("host_vars/node03.yml:1")
    assert origins["yes_"].endswith("group_vars/all.yml:6")


def test_a_closed_vault_is_said_clearly() -> None:
    with pytest.raises(GoldsmithError) as caught:
        Inventory(SITE, None).host("login1").variables["secret_token"]
    assert "GOLDSMITH_VAULT_PASSWORD_FILE" in str(caught.value) and "hunter2" not in str(caught.value)


def test_a_broken_inventory_names_its_file(tmp_path: Path) -> None:
    (tmp_path / "hosts.yml").write_text("all:\n  hosts:\n    a: {\n")
    with pytest.raises(GoldsmithError, match=str(tmp_path)):
        Inventory(tmp_path)
    (tmp_path / "hosts.yml").write_text("all:\n  hosts:\n    a:\n      x: '{{ nope }}'\n")
    with pytest.raises(GoldsmithError, match="nope"):
        Inventory(tmp_path).host("a")


def test_argument_specs() -> None:
    spec = {
        "mtu": {"type": "int", "default": 9000, "description": "x"},
        "mode": {"type": "str", "choices": ["a", "b"], "required": True},
        "nics": {"type": "list", "elements": "dict", "options": {"mtu": {"type": "int", "default": 1}}},
    }
    values, errors = validate(spec, {"mode": "a", "nics": [{}]})
    assert (values, errors) == ({"mtu": 9000, "mode": "a", "nics": [{"mtu": 1}]}, [])
    assert "mode" in validate(spec, {})[1][0]
    assert "mtu" in validate(spec, {"mode": "a", "mtu": "large"})[1][0]
