# One command each; every target does its own set-up. `make help` lists them.
PYTHON ?= python3
N ?= 2000
BIN := .venv/bin
STAMP := .venv/.installed
SHELL := /bin/sh

# More for pytest: make test PYTEST=--junitxml=FILE. WORKERS=0 runs all in one process. Three
# workers on two cores: tests of servers wait for most of their time.
PYTEST ?=
WORKERS ?= 3
TESTS := $(BIN)/python -m pytest --dist loadgroup --no-loadscope-reorder

# What make test runs, by marks: tests without a JVM, and a story of each mechanism (tests/stories.py).
FIRST := story or not jvm

# The tests of another minor of Spark: make test-spark VERSION=4.0. SAMPLE=1 runs a few of each kind.
VERSION ?= 4.1
MINOR := build/spark-$(VERSION)
SAMPLE ?=
SPARK_TESTS := $(if $(SAMPLE),tests/engine/test_contract.py tests/bootstrap/test_outcomes.py \
  tests/streams/checkpoint/test_restarts.py tests/streams/running/test_alter_under_queries.py::test_rotation,\
  tests/engine tests/bootstrap tests/streams/checkpoint tests/streams/spark tests/streams/running)

.PHONY: help install jars java compile test test-rest test-all test-fast test-spark soak coverage lint demo demo-streams bench simulate simulate-table mutants crash crash-streams crash-unsafe crash-faults docs house delta-features users-views screenshots lock wheel clean
.DEFAULT_GOAL := help

help:
	@echo "make install         create .venv with the command line in it (quick when up to date)"
	@echo "make jars            fetch Spark's and the broker's jars, those for S3, checksums compared"
	@echo "make java            compile our Java (conditional PUT on S3) into the jar of the package"
	@echo "make test            tests without a JVM, and a real story of each mechanism; minutes"
	@echo "make test-all        all tests that guard a merge: make test, then make test-rest"
	@echo "make test-rest       those of make test-all that make test does not run"
	@echo "make test-fast       those that need no Java and no server, for every save"
	@echo "make test-spark      engine, starts and streams on another Spark; VERSION=4.0 or 4.1, SAMPLE=1"
	@echo "make soak            every long series, with a table: crashes, races, faults, simulation; hours"
	@echo "make coverage        make test-all with its coverage by lines and branches; slow"
	@echo "make lint            ruff, mypy --strict, layers"
	@echo "make demo            watch a real catalog of 208 objects upgraded twice, a minute; on S3: WAREHOUSE=s3://demo"
	@echo "make demo-streams    watch a password rotated and a broker moved under running queries"
	@echo "make bench           the figures; OUT=docs/benchmarks.md writes them there, ONLY=postgres one group"
	@echo "make simulate        N=$(N) random schedules on the simulated engine; JOBS=…"
	@echo "make simulate-table  docs/simulation.md: what 20,000 schedules reach (some minutes)"
	@echo "make mutants         change the product in 400 places, one at a time, and see which tests fail; hours"
	@echo "make crash           kill upgrades at every step, on real Spark; CRASH_FIRST=n goes on at a point"
	@echo "make crash-streams   kill client or runtime in an ALTER CONNECTION, 25 times; random DDL upstream"
	@echo "make crash-unsafe    kill client and runtime in unsafe operations, CRASH_UNSAFE=50 times"
	@echo "make crash-faults    stop, race, starve and damage real processes and files, 20 rounds"
	@echo "make house           how much code there is, and how tangled; REVISIONS=\"main .\" LIST=1 names the worst"
	@echo "make docs            docs/states.md as the code has it"
	@echo "make delta-features  docs/delta-features.md, every cell tried on Spark (ten minutes)"
	@echo "make users-views     docs/users-views.md, every cell tried on Spark (a minute)"
	@echo "make screenshots     the pictures of README and documentation, by headless Chromium"
	@echo "make lock            resolve requirements/dev.txt again"
	@echo "make wheel           build the wheel into dist/"

install: $(STAMP)

$(STAMP): requirements/dev.txt pyproject.toml .ci/setup
	@PYTHON="$(PYTHON)" .ci/setup
	@touch $(STAMP)

jars: install
	@$(BIN)/python -m catalog_migrate.engine.spark.jars
	@$(BIN)/python -m tests.services.broker_jars

# the same bytes each time; needs the JDK that the jar's manifest names
java: jars
	@$(BIN)/python -m tests.engine.spark.java_build

# the set-up compiles once; what was edited since is compiled here
compile: install
	@$(BIN)/python -m compileall -q catalog_migrate tests examples

# once a set-up: each JVM of the tests maps them, instead of reading jars
build/spark-classes.jsa: $(STAMP)
	@$(BIN)/python -m catalog_migrate.engine.spark.jars
	@$(BIN)/python -m tests.services.spark_classes

# three quarters of Spark's usual heap are enough for a story
test: jars compile build/spark-classes.jsa
	SPARK_DRIVER_MEMORY=768m $(TESTS) -n $(WORKERS) --durations=15 --times=build/times.md -m "$(FIRST)" $(PYTEST)

test-rest: jars compile build/spark-classes.jsa
	$(TESTS) -n $(WORKERS) --durations=15 --times=build/times-rest.md -m "not ($(FIRST))" $(PYTEST)

test-all:
	@failed=0; $(MAKE) test || failed=1; $(MAKE) test-rest || failed=1; exit $$failed

# JAVA_HOME leads nowhere, so that a test that starts a JVM fails here
test-fast: compile
	JAVA_HOME=/nonexistent $(TESTS) -n 2 -m "not spark and not services and not crash" --times=build/times-fast.md $(PYTEST)

test-spark: $(MINOR)/.installed
	@$(MINOR)/bin/python -m catalog_migrate.engine.spark.jars
	@$(MINOR)/bin/python -m tests.services.broker_jars
	$(MINOR)/bin/python -m pytest -m spark $(PYTEST) $(SPARK_TESTS)

build/spark-%/.installed: requirements/spark-%.txt requirements/dev.txt pyproject.toml .ci/setup
	@VENV=build/spark-$* OVERRIDES=requirements/spark-$*.txt PYTHON="$(PYTHON)" .ci/setup
	@touch $@

soak: jars compile build/spark-classes.jsa
	$(BIN)/python -m bench.soak

coverage: jars compile build/spark-classes.jsa
	rm -rf build/coverage
	$(BIN)/coverage run -m pytest --dist loadgroup --no-loadscope-reorder -n $(WORKERS) $(PYTEST)
	$(BIN)/coverage combine --quiet
	$(BIN)/coverage report --skip-covered --sort=cover > build/coverage/report.txt
	@tail -1 build/coverage/report.txt

lint: install
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# each fetches the jars that it uses
demo: install
	$(BIN)/catalog-migrate demo $(if $(WAREHOUSE),--warehouse $(WAREHOUSE))

demo-streams: jars
	$(BIN)/catalog-migrate demo --streams

bench: jars
	$(BIN)/python -m bench $(foreach group,$(ONLY),--only $(group)) $(if $(OUT),--out $(OUT))

simulate: install
	$(BIN)/python -m tests.simulation.simulate $(N) $(if $(JOBS),--jobs $(JOBS)) --keep tests/simulation/seeds

simulate-table: install
	$(BIN)/python -m tests.simulation.simulate 20000 $(if $(JOBS),--jobs $(JOBS)) --table docs/simulation.md

mutants: install compile
	nice -n 15 $(BIN)/python -m bench.mutants $(MUTANTS) --page docs/testing.md

crash: jars build/spark-classes.jsa
	CRASH_ALL=1 $(BIN)/python -m pytest -s --soak tests/crash

crash-streams: jars build/spark-classes.jsa
	CRASH_STREAMS=25 $(BIN)/python -m pytest -s --soak tests/streams/crash

crash-unsafe: jars build/spark-classes.jsa
	CRASH_UNSAFE=$${CRASH_UNSAFE:-50} $(BIN)/python -m pytest -s --soak tests/streams/unsafe/test_killed.py \
	  tests/streams/crash/test_unsafe_killed.py

crash-faults: jars build/spark-classes.jsa
	CRASH_FAULTS=20 $(BIN)/python -m pytest -s --soak tests/faults

docs: install
	$(BIN)/python -m tests.simulation.states > docs/states.md.new
	mv docs/states.md.new docs/states.md

house: install
	@$(BIN)/python -m bench.house $(REVISIONS) $(if $(LIST),--list)
	@$(BIN)/python -m bench.start
	@$(BIN)/python -m bench.statements

delta-features: install
	$(BIN)/python -m tests.delta_features.page --write

users-views: install
	$(BIN)/python -m tests.users.view_page

screenshots: install
	REQUIRE_BROWSER=1 UPDATE_SNAPSHOTS=1 $(BIN)/python -m pytest -n 0 tests/browser/test_screenshots.py

# No index address goes into the lock: whoever installs uses the one that is configured there.
lock: install
	$(BIN)/uv pip compile --quiet --generate-hashes --no-emit-index-url --no-header \
	  --python-version 3.10 --universal --extra spark --extra streams --extra telemetry --extra s3 --extra connect --extra registry --extra tunnel --group dev pyproject.toml \
	  --output-file requirements/dev.txt
	for lock in requirements/spark-*.txt; do $(BIN)/uv pip compile --quiet --generate-hashes --no-deps --no-annotate \
	  --no-emit-index-url --no-header --python-version 3.10 --universal $$lock --output-file $$lock; done

wheel: install
	$(BIN)/hatchling build -t wheel

clean:
	rm -rf .venv .cache dist build .mypy_cache .ruff_cache .pytest_cache .hypothesis
