# Two commands: `make run` opens the app, `make test` runs every check. Each installs what it needs, both may be repeated.

VENV := .venv
BIN := $(VENV)/bin
PYTHON ?= $(shell for p in python3 python3.14 python3.13 python3.12 python3.11 python3.10 python; do \
	"$$p" -c 'import sys; sys.exit(sys.version_info < (3, 10))' 2>/dev/null && echo "$$p" && break; done)
ARGS ?=
PYTEST_ARGS ?= -n 2 --dist loadfile

# Does .venv exist, work, and hold this very checkout? (A moved or copied folder keeps a .venv that points elsewhere.)
VENV_OK := $(shell $(BIN)/python -I -c 'import os, sys, dspark_core as d; \
	sys.exit(not os.path.samefile(os.path.dirname(d.__file__), "dspark_core"))' 2>/dev/null && echo yes)

.PHONY: run test setup fetch browser check format clean FORCE
.DEFAULT_GOAL := run
.NOTPARALLEL:

run: setup  ## open the app on 127.0.0.1:7860; options: make run ARGS="--port 8000"
	@echo "Starting the app; stop it with Ctrl-C."
	@$(BIN)/python app.py $(ARGS)

setup: $(VENV)/installed-app fetch  ## only install and fetch

test: $(VENV)/installed-test fetch browser check  ## lint, types and every test, browser included

check:
	$(BIN)/python -m ruff check .
	$(BIN)/python -m ruff format --check .
	$(BIN)/python -m mypy
	CHROMIUM="$$($(find_chromium))" $(BIN)/python -m pytest $(PYTEST_ARGS)

format: $(VENV)/installed-test  ## rewrite the code in the one style
	$(BIN)/python -m ruff check --fix .
	$(BIN)/python -m ruff format .

fetch:
	@$(BIN)/python -m dspark_core fetch

clean:  ## forget the installation (the fetched model stays in its cache)
	rm -rf $(VENV) build ./*.egg-info .pytest_cache .mypy_cache .ruff_cache

$(VENV)/installed-app: pyproject.toml $(if $(VENV_OK),,FORCE)
	$(call install,.)
	@touch $@

$(VENV)/installed-test: pyproject.toml $(if $(VENV_OK),,FORCE)
	$(call install,.[test])
	@touch $(VENV)/installed-app $@

# A virtual environment with a working pip, then the packages. Says what it does: the first time takes minutes.
define install
	@if ! $(BIN)/python -m pip --version >/dev/null 2>&1; then \
		"$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 10))' 2>/dev/null || { \
			echo "No Python 3.10 or newer was found$(if $(PYTHON), as $(PYTHON)), and the app needs one. Install it"; \
			echo "(python.org, or your system's packages), or name yours: make run PYTHON=/path/to/python3"; exit 1; }; \
		echo "Creating $(VENV) with $$("$(PYTHON)" --version)"; \
		"$(PYTHON)" -m venv --clear $(VENV) >/dev/null 2>&1 || { rm -rf $(VENV); \
			echo "$(PYTHON) cannot create a virtual environment (Debian and Ubuntu ship that part apart)."; \
			echo "Install it, for example with: sudo apt install python3-venv    Then repeat the command."; exit 1; }; fi
	@echo "Installing the packages into $(VENV). The first time takes some minutes (torch is large)."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check "pip>=23"
	@$(BIN)/python -m pip install --disable-pip-version-check --editable "$(1)" || { \
		echo "The packages could not be installed, see above. Check the network and the free disk space, then repeat."; \
		exit 1; }
endef

find_chromium = for p in $(or $(CHROMIUM),chromium chromium-browser google-chrome google-chrome-stable); do \
	command -v "$$p" && break; done

browser:
	@if [ -n "$$($(find_chromium))" ]; then exit 0; fi; \
	as_root=""; [ "$$(id -u)" = 0 ] || as_root="sudo -n"; \
	if command -v apt-get >/dev/null && $$as_root true 2>/dev/null; then \
		echo "No Chromium was found, the browser tests need one: installing Debian's package."; \
		$$as_root apt-get update -qq && \
		$$as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
			chromium fonts-dejavu-core >/dev/null; fi; \
	if [ -z "$$($(find_chromium))" ]; then \
		echo "The browser tests need a Chromium and none could be installed here. Install one (Debian, Ubuntu:"; \
		echo "sudo apt install chromium), or name yours: make test CHROMIUM=/path/to/chromium"; exit 1; fi
