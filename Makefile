# What people type. Everything is set up on the way; nothing else is done by hand.
.DEFAULT_GOAL := help
.PHONY: help setup need-root lab stop-lab clean-lab test test-vm bench-lock bench-build lint \
    lint-image lock-check build-image hygiene boot-image verify-image requirements new-role clean

goldsmith := .venv/bin/goldsmith
# the image that a new role is added to (IMAGE= for none), or that is built and checked
IMAGE ?= lab
# of a built image: its formats, its folder, the ssh key that signs it, whose signatures count
FORMAT ?= rootfs,disk
state := $(or $(GOLDSMITH_STATE),.goldsmith)
OUTPUT ?= $(state)/images/$(IMAGE)
SIGN ?= $(or $(GOLDSMITH_SIGN_KEY),lab)
SIGNERS ?= $(or $(GOLDSMITH_ALLOWED_SIGNERS),$(state)/signing/allowed_signers)
# WARN is told and stops no pipeline; make itself makes 2 of every other exit code
warn_passes = || [ $$? -eq 1 ]

help:  ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup:  ## .venv from requirements.lock, if that has changed
	@scripts/setup.sh

need-root:
	@test "$$(id -u)" = 0 || { echo "error: this needs root: it makes namespaces, mounts and bridges" >&2; \
	    echo "  run it as root: sudo make $(firstword $(MAKECMDGOALS))" >&2; exit 4; }

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

lint-image: setup  ## make lint-image [IMAGE=x]: what can't work together in an image, and in its lock
	@$(goldsmith) lint "images/$(IMAGE)" $(warn_passes)

lock-check: setup  ## does the lock fit image.yml, and can all of it still be had?
	@$(goldsmith) lock "images/$(IMAGE)" --check $(warn_passes)

build-image: need-root setup  ## build [IMAGE=x] in [FORMAT=rootfs,disk], signed by [SIGN=key], into [OUTPUT=dir] (as root)
	@$(goldsmith) build "images/$(IMAGE)" --format "$(FORMAT)" --output "$(OUTPUT)" --sign "$(SIGN)"

hygiene: need-root setup  ## does the image in [OUTPUT=dir] hold what no image may? (as root)
	@$(goldsmith) hygiene "$(OUTPUT)"

boot-image: setup  ## boot the disk in [OUTPUT=dir], audit it, power it off
	@$(goldsmith) boot "$(OUTPUT)" --allowed-signers "$(SIGNERS)" $(warn_passes)

verify-image: setup  ## is what is in [OUTPUT=dir] whole, signed by one of [SIGNERS=file], of its lock?
	@$(goldsmith) verify "$(OUTPUT)" --allowed-signers "$(SIGNERS)"

requirements: setup  ## renew requirements.lock from pyproject.toml
	@scripts/requirements.sh

bench-lock: lab  ## what an exact lock costs, beside plain apt: resolve, pool, a deploy that changes nothing (as root)
	@.venv/bin/python benchmarks/lock.py inventories/lab

bench-build: lab  ## what a build costs: cold, warm, after a role or a pin changed; beside plain mmdebstrap (as root)
	@.venv/bin/python benchmarks/build.py lab

new-role: setup  ## make new-role NAME=x [IMAGE=lab]: lay down roles/x and add it to the image
	@test -n "$(NAME)" || { echo "error: which role? make new-role NAME=x" >&2; exit 4; }
	@$(goldsmith) new-role "$(NAME)" $(if $(IMAGE),--image "$(IMAGE)")

clean: clean-lab  ## clean-lab, and .venv and all caches
	@rm -rf --one-file-system -- .venv .pytest_cache .mypy_cache .ruff_cache .hypothesis
	@find . -name __pycache__ -type d -prune -exec rm -rf -- {} +
