# Two commands: `make demo` and `make test`. Each does all of its own set-up.
VENV := .venv
BIN := $(VENV)/bin

# Tests start hundreds of processes of ours: without bytecode each would compile the whole project, in more time than all else it does.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: demo test test-cyborg test-services test-placement test-kill test-load test-long check mutants lab lab-short clean setup setup-test setup-lab lock bench test-peer setup-peer lock-peer

demo: setup
	@$(BIN)/jetbridge demo

test: setup-test check
	$(BIN)/pytest -n 3

# The system tests once more, with every service in a process of its own.
test-services: setup-test
	JETBRIDGE_TEST_DEPLOYMENT=separate $(BIN)/pytest tests/system

# Those of Placement once more, with one that runs elsewhere with its own defaults, on PostgreSQL and on MariaDB.
test-placement: setup-test
	for kind in postgresql mariadb; do JETBRIDGE_TEST_PLACEMENT=$$kind $(BIN)/pytest tests/system/test_placement_*.py || exit 1; done

# SIGKILL at every moment of every step: docs/tests.md.
test-kill: setup-test
	$(BIN)/pytest -n 2 tests/kill

COME_AND_GO := test_105_and_d25_servers_that_come_and_go_leak_no_mdev_and_touch_no_foreign_one
# 200 servers at once on 100 devices, on every database, in one process and in many; races and restarts on database servers.
test-load: setup-test
	$(BIN)/pytest tests/long/test_load.py
	$(BIN)/pytest --long tests/system/test_boot_races.py tests/system/test_database_restart.py "tests/system/test_vgpu.py::$(COME_AND_GO)"

# Hours of chance. SEED=NUMBER has a run again.
test-long: setup-test
	$(BIN)/pytest tests/long $(if $(SEED),--seed $(SEED)) $(if $(OPERATIONS),--operations $(OPERATIONS))
	$(BIN)/pytest --timeout 0 --long tests/unit/compute/test_tracker_properties.py tests/system/test_api_properties.py

check: setup-test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy jetbridge
	$(BIN)/lint-imports

# Thousands of questions, asked of Nova's released package too: docs/tests.md.
test-peer: setup-test setup-peer
	$(BIN)/pytest tests/peer

# Figures beside Nova's, taken in one run: docs/performance.md.
BENCHMARKS := filter_pass pools numa_fit claim boots placement_boot
bench: setup-test setup-peer
	@for name in $(BENCHMARKS); do echo "== $$name"; $(BIN)/python -m benchmarks.$$name || exit 1; done

# The client of accelerator services against the released Cyborg, in an environment of its own (about a minute to make, once).
test-cyborg: setup-test .venv-cyborg/.ready
	$(BIN)/pytest tests/cyborg

.venv-cyborg/.ready: tests/cyborg/requirements.lock
	$(BIN)/python -m venv .venv-cyborg
	.venv-cyborg/bin/pip install --quiet --disable-pip-version-check -r tests/cyborg/requirements.lock
	@touch $@

# Real VFIO in an emulated machine: docs/lab.md.
lab: setup-lab
	$(BIN)/pytest tests/lab

lab-short: setup-lab
	$(BIN)/pytest tests/lab -m short

mutants: setup-test
	$(BIN)/python -m tests.mutants

setup: $(VENV)/.run
setup-test: $(VENV)/.test
setup-lab: $(VENV)/.lab
setup-peer: $(VENV)/.peer

$(VENV)/.run: requirements.lock pyproject.toml scripts/setup
	@scripts/setup run
	@touch $@

$(VENV)/.test: $(VENV)/.run scripts/setup
	@scripts/setup test
	@touch $@

$(VENV)/.lab: $(VENV)/.test scripts/setup
	@scripts/setup lab
	@touch $@

$(VENV)/.peer: $(VENV)/.run scripts/setup tests/peer/requirements.lock
	@scripts/setup peer
	@touch $@

lock-peer: setup-test
	$(BIN)/pip-compile -q --generate-hashes --allow-unsafe --no-strip-extras --no-emit-index-url --no-emit-find-links --no-emit-trusted-host -o tests/peer/requirements.lock tests/peer/requirements.in

# After a change of the dependencies in pyproject.toml: writes the lock file anew.
lock: setup-test
	$(BIN)/pip-compile -q --generate-hashes --allow-unsafe --no-strip-extras --no-emit-index-url --no-emit-find-links --no-emit-trusted-host --extra dev -o requirements.lock pyproject.toml

clean:
	rm -rf $(VENV) .venv-cyborg .peer .lab build *.egg-info
