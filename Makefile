# What people type. Everything is set up on the way; nothing else is done by hand.
.DEFAULT_GOAL := help
.PHONY: help setup lab clean-lab test lint requirements new-role clean

goldsmith := .venv/bin/goldsmith

help:  ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup:  ## .venv from requirements.lock, if that has changed
	@scripts/setup.sh

lab: setup  ## lock and build the lab's image, boot 4 nodes from it, deploy, audit (as root)
	@$(goldsmith) lab up

clean-lab: setup  ## stop the lab and remove it; the pool and built images stay
	@$(goldsmith) lab down --remove

test: setup  ## all tests; those that need root and systemd-nspawn say so when they are skipped
	@.venv/bin/pytest

lint: setup  ## ruff and mypy alone
	@.venv/bin/ruff check .
	@.venv/bin/mypy

requirements: setup  ## renew requirements.lock from pyproject.toml
	@scripts/requirements.sh

new-role: setup  ## make new-role NAME=x: lay down roles/x
	@test -n "$(NAME)" || { echo "error: which role? make new-role NAME=x" >&2; exit 4; }
	@$(goldsmith) new-role "$(NAME)"

clean: clean-lab  ## clean-lab, and the pool, the images, .venv and all caches
	@scripts/clean.sh
