# The doors. Each sets up what it needs; a second run of the set-up takes no time.
BIN := .venv/bin
export PYTHONPATH := .
TEST_PROCESSES ?= 4
TOOLS := .venv/tools
DOCS := .venv/docs
CHART := .venv/chart
PEERS := .venv/peers
FHIR := .venv/fhir
LOCKED := --no-deps --require-hashes --only-binary :all:
PIP_AUDIT = $(TOOLS)/bin/pip-audit --strict --disable-pip --require-hashes --progress-spinner off $(AUDIT)
PIP_LOCKED := $(BIN)/pip install --quiet $(LOCKED)

.PHONY: help setup demo demo-fleet test chart docs-site docs-pictures capacity check gpu-proof load load-peer bench-campaign bench-commits bench-cpu bench-deliver bench-echo bench-fleet bench-infer bench-ingest bench-object-store bench-parity bench-pools bench-preprocess bench-report bench-rules bench-tracing bench-zero-shot goldens image-proof proof pythons docs lock sbom wheelhouse audit-packages

help: ## list these targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { \
	  line = sprintf("  make %-18s", $$1); \
	  count = split($$2, words, " "); \
	  for (i = 1; i <= count; i++) { \
	    if (length(line " " words[i]) > 80) { print line; line = sprintf("%25s", "") } \
	    line = line " " words[i] } \
	  print line }' $(MAKEFILE_LIST)

setup: ## Debian packages, .venv with exact pins, the embedded Triton, hilum itself
	@deploy/setup.sh

demo: setup ## a study in, its SR in a PACS; DEMO_EXIT=1 ends by itself, STUDY=path sends your own files, WEIGHTS=torchxrayvision downloads trained weights
	@$(BIN)/python deploy/demo.py $(if $(WEIGHTS),--weights $(WEIGHTS)) $(STUDY)

demo-fleet: setup ## thirteen hosts in network namespaces, one loses its power, three minutes (root); FLEET="--lose listen1"
	@$(BIN)/python -m load_tests.fleet.demo $(FLEET)

# A test process that dies is not replaced: with loadfile the replacement can wait for ever for its second test.
test: setup $(TOOLS)/.set-up $(DOCS)/.set-up $(CHART)/.set-up $(PEERS)/.set-up $(FHIR)/.set-up ## all tests, four files of them at a time; TEST_PROCESSES=0: one after the other
	$(BIN)/pytest -n $(TEST_PROCESSES) --dist loadfile --no-loadscope-reorder --max-worker-restart=0 --durations=15

check: setup ## style, types, walls between the rooms, documentation; fast
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy --strict
	MYPYPATH=. $(BIN)/mypy --strict --explicit-package-bases load_tests testing deploy preprocessing/build_hook.py preprocessing/compile_c.py
	$(BIN)/lint-imports
	$(BIN)/pytest -q tests/unit/docs/test_docs.py

load: setup ## a load scenario; SCENARIO=list names them, LOAD="--seconds 300", docs/figures/load.md
	@$(BIN)/python -m load_tests.load.run $(or $(SCENARIO),steady) $(LOAD)

load-peer: setup ## Hilum beside Orthanc with Python workers, in turns; PEER="--rounds 2", docs/figures/peer.md
	@$(BIN)/python -m load_tests.peer.run $(PEER)

proof: setup ## faults under load, an hour; PROOF="--short", PROOF="kills --seed 7", docs/figures/proof.md
	@$(BIN)/python -m load_tests.proof $(PROOF)

capacity: setup ## hosts, GPUs and disks for a day's studies; CAPACITY="--studies 50000 --peak 3", docs/capacity.md
	@$(BIN)/python -m load_tests.capacity.run $(CAPACITY)

# No setup: a machine with a GPU may have no network. Where .venv is, its Python runs it.
GPU_PYTHON ?= $(or $(wildcard $(BIN)/python),python3)
gpu-proof: ## the GPU beside the CPU, and rates on it; GPU="--device cpu --quick", docs/figures/gpu.md
	@PYTHONPATH=.:preprocessing:server $(GPU_PYTHON) -m load_tests.gpu.run --out load_tests/results $(GPU)

image-proof: setup ## the image of deploy/Dockerfile made and run without docker (root, debootstrap), docs/operate/images.md
	@$(BIN)/python -m load_tests.proof image air_gap $(PROOF)

goldens: setup ## recipes beside their authors' operations; GOLDENS="--record" when the table is right, docs/models/recipes.md
	@$(BIN)/python -m load_tests.bench.goldens $(GOLDENS)

bench-campaign: setup ## campaigns beside the bare engine, live studies and movescu; BENCH="--rounds 1", docs/figures/campaigns.md
	@$(BIN)/python -m load_tests.campaign.run $(BENCH)

bench-commits: setup ## journal commits of a received object, one sync beside two (root); BENCH="--folder /srv/hilum"
	@$(BIN)/python -m load_tests.bench.commits $(BENCH)

bench-deliver: setup ## reports a second: C-STORE to DCMTK, STOW-RS to Orthanc, HL7 to python-hl7, signed webhooks, FHIR; BENCH="--way stow"
	@$(BIN)/python -m load_tests.bench.deliver $(BENCH)

bench-echo: setup ## C-ECHO while JPEG 2000 is decoded; BENCH="--seconds 60"
	@$(BIN)/python -m load_tests.bench.echo $(BENCH)

bench-fleet: setup ## the ledger at 10^7 readings on PostgreSQL; BENCH="--rows 1000000", docs/figures/ledger.md
	@$(BIN)/python -m load_tests.ledger.run $(BENCH)

bench-object-store: setup ## an image into an object store and out of it, beside a folder; BENCH="--url s3://bucket/prefix"
	@$(BIN)/python -m load_tests.ingest.object_store $(BENCH)

bench-parity: setup ## do engines say what torch says? every architecture; BENCH="--quick", docs/figures/models_parity.md
	@$(BIN)/python -m load_tests.bench.parity $(BENCH)

bench-pools: setup ## DenseNet-121 as built beside torch's own export; BENCH="--rounds 30", docs/figures/inference.md
	@$(BIN)/python -m load_tests.bench.pools $(BENCH)

bench-preprocess: setup ## from file to tensor on one core, beside the authors' code path; BENCH="--quick", docs/models/preprocessing.md
	@test -d state/preprocess-peers || $(PIP_LOCKED) --target state/preprocess-peers -r deploy/lock/preprocess-peers.txt
	@PYTHONPATH=.:state/preprocess-peers $(BIN)/python -m load_tests.preprocess.run $(BENCH)

bench-report: setup ## reports a second: template beside highdicom; BENCH="--rounds 30"
	@$(BIN)/python -m load_tests.bench.report $(BENCH)

bench-rules: setup ## how long rules take to decide about a study; BENCH="--rounds 500", docs/operate/rules.md
	@$(BIN)/python -m load_tests.bench.rules $(BENCH)

bench-tracing: setup ## what OpenTelemetry spans cost an image; BENCH="--rounds 9", docs/operate/tracing.md
	@$(BIN)/python -m load_tests.bench.tracing $(BENCH)

bench-zero-shot: setup ## are CheXzero's towers those of Hugging Face's CLIP? BENCH="--quick", docs/figures/models_parity.md
	@test -d state/zero-shot-peers || $(PIP_LOCKED) --target state/zero-shot-peers -r deploy/lock/zero-shot-peers.txt
	@PYTHONPATH=.:state/zero-shot-peers $(BIN)/python -m load_tests.zero_shot.parity $(BENCH)

bench-cpu: setup ## CPU of an image by stage and process; BENCH="--studies 20", docs/figures/cpu.md
	@$(BIN)/python -m load_tests.bench.cpu $(BENCH)

bench-infer: setup ## Triton beside the bare engine, engines compared; BENCH="--quick", docs/figures/inference.md
	@$(BIN)/python -m load_tests.infer.run $(BENCH)

bench-ingest: setup ## what receiving costs, beside DCMTK; BENCH="--rounds 1 --associations 4"
	@$(BIN)/python -m load_tests.ingest.run $(BENCH)

pythons: ## environments of Python 3.12 and 3.13 for their test, where these are at hand
	@deploy/pythons.sh

docs: setup ## regenerate the generated parts of docs/
	@$(BIN)/python deploy/generate_docs.py

docs-site: $(DOCS)/.set-up ## the documentation as a site in state/site, to be read without a network
	@$(DOCS)/bin/python deploy/site/build.py

docs-pictures: setup ## draw the pictures of the README anew: a study's page, a heat map, the diagram
	@$(BIN)/python -m deploy.docs_pictures

chart: $(CHART)/.set-up ## render the Kubernetes chart to state/chart, lint it, check it against the API's schemas; docs/operate/kubernetes.md
	@$(CHART)/bin/python deploy/chart.py

lock: setup $(TOOLS)/.set-up ## pin what .venv holds, with hashes; UPGRADE=1: newer tools and CUDA libraries, too
	@$(BIN)/python deploy/write_locks.py

sbom: setup $(TOOLS)/.set-up ## packages of the server as CycloneDX, and their licences, for the wheel; after make lock
	@$(BIN)/python -m deploy.sbom

wheelhouse: setup ## every wheel of the server in dist/wheelhouse, for a machine without a network
	@$(BIN)/python -m deploy.wheelhouse

# Fails where a package could not be looked up: "no known flaws" is said of those only that were.
audit-packages: setup $(TOOLS)/.set-up ## known flaws of the pinned packages, as PyPI has them now; AUDIT="-s osv" asks another database
	@echo "advisories: asked now, $$(date -u +%FT%TZ), of $(or $(AUDIT),PyPI (the PyPA advisory database))"
	@$(PIP_AUDIT) $(foreach lock,server torch-cpu build,-r deploy/lock/$(lock).txt)
	@$(PIP_AUDIT) -r server/hilum/triton/lock.txt

# Programs that look at packages, those that make the site, and Helm's library stand apart from Hilum
# and from each other: what they need themselves is no part of it.
# A validator of FHIR in JavaScript. Without node its tests are skipped.
$(FHIR)/.set-up: deploy/lock/fhir/package.json deploy/lock/fhir/package-lock.json
	@mkdir -p $(@D) && cp $^ $(@D)
	@if npm ci --prefix $(@D) --ignore-scripts --no-audit --no-fund --silent; then touch $@; \
	else echo "make: npm installs no validator of FHIR, so its tests are skipped"; echo "(Debian: npm, and a registry)"; fi

$(TOOLS)/.set-up $(DOCS)/.set-up $(CHART)/.set-up $(PEERS)/.set-up: .venv/%/.set-up: deploy/lock/%.txt | setup
	@test -x $(@D)/bin/python || $(BIN)/python -m venv $(@D)
	@$(@D)/bin/python -m pip install --quiet --disable-pip-version-check $(LOCKED) -r $<
	@touch $@
