# What people type. Everything is set up on the way; nothing else is done by hand.
.DEFAULT_GOAL := help
.PHONY: help setup need-root lab stop-lab clean-lab test test-vm bench-lock lint requirements new-role clean

goldsmith := .venv/bin/goldsmith
# the image that a new role is added to; IMAGE= for none
IMAGE ?= lab

help:  ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup:  ## .venv from requirements.lock, if that has changed
	@scripts/setup.sh

need-root:
	@test "$$(id -u)" = 0 || { echo "error: the lab needs root: it makes namespaces, mounts and a bridge" >&2; \
	    echo "  run it as root: sudo make lab" >&2; exit 4; }

lab: need-root setup  ## lock and build the lab's image, boot 4 nodes from it, deploy, audit (as root)
	@$(goldsmith) lab up

stop-lab: setup  ## stop the lab and remove its nodes; the pool and built images stay for the next `make lab`
	@$(goldsmith) lab down --remove

clean-lab: stop-lab  ## stop the lab and remove all that it made: nodes, images, pool
	@scripts/clean.sh

test: setup  ## all tests; those that need root and systemd-nspawn say so when they are skipped
	@.venv/bin/pytest

test-vm: setup  ## boot two clones of images/lab's disk in QEMU and test them (as root); part of `make test`
	@.venv/bin/pytest tests/vm

lint: setup  ## ruff and mypy alone
	@.venv/bin/ruff check
	@.venv/bin/ruff format --check
	@.venv/bin/mypy

requirements: setup  ## renew requirements.lock from pyproject.toml
	@scripts/requirements.sh

bench-lock: lab  ## what an exact lock costs, beside plain apt: resolve, pool, a deploy that changes nothing (as root)
	@.venv/bin/python benchmarks/lock.py inventories/lab

new-role: setup  ## make new-role NAME=x [IMAGE=lab]: lay down roles/x and add it to the image
	@test -n "$(NAME)" || { echo "error: which role? make new-role NAME=x" >&2; exit 4; }
	@$(goldsmith) new-role "$(NAME)" $(if $(IMAGE),--image "$(IMAGE)")

clean: clean-lab  ## clean-lab, and .venv and all caches
	@rm -rf --one-file-system -- .venv .pytest_cache .mypy_cache .ruff_cache .hypothesis
	@find . -name __pycache__ -type d -prune -exec rm -rf -- {} +
