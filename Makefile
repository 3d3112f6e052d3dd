# `make help` lists what there is.

SHELL := /bin/sh
.DEFAULT_GOAL := help
# How many end-to-end tests run side by side. Each has its own agent, repository and names.
E2E_THREADS ?= 6

# How many tests of a program run side by side. Many wait for a clock, a process or a disk.
UNIT_THREADS ?= 4

# The cases the property tests draw: the same in each run of `make unit`, so that red means that the code changed.
# `make soak` draws new ones.
PROPTEST_RNG_SEED ?= 20261121
SOAK_CASES ?= 20000

# The build profile of the agent in the fault campaign.
CHAOS_PROFILE ?= dev

# How long broken files are made up, in seconds.
FUZZ_SECONDS ?= 600

# How long the line to a collector is cut, in seconds.
FLEET_CUT ?= 3600

# A test that this machine cannot run says `skipped`. It fails if this list names what it needs: `make test` promises what it has
# installed, which is all of it for root on Debian 12. `make test NO_SKIP=` promises nothing.
NO_SKIP ?= $(shell [ "$$(id -u)" != 0 ] || ! grep -qs '^VERSION_CODENAME=bookworm' /etc/os-release || echo compose-1,root,network)

.PHONY: help corpus demo build dist dist-all image test unit browser e2e e2e-faults e2e-swarm swarm-conformance swarm-proof differential differential-podman lint deny book recording fmt bench chaos fleet-proof fuzz schemathesis soak clean-tests

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-19s %s\n", $$1, $$2 }' Makefile

demo: ## Install Docker if needed, build, deploy the examples from a local Git repository, show healing
	@scripts/demo.sh

build: ## Build target/release/driftless
	cargo build --release --locked

# DIST_TARGET=aarch64-unknown-linux-gnu builds for another target, DIST_BINARY=FILE packs a program that is built: scripts/dist.sh.
dist: ## Build what a release publishes into target/dist-files: archive, Debian package, SBOM, checksums
	scripts/dist.sh

# The targets of a release. Those for another processor are started with qemu where it is installed.
dist-all: ## Build the files of all targets of a release: x86_64 and aarch64, each with glibc and with musl
	for target in x86_64-unknown-linux-gnu x86_64-unknown-linux-musl aarch64-unknown-linux-gnu aarch64-unknown-linux-musl; do \
		DIST_TARGET=$$target DIST_HOST_BINARY="$${CARGO_TARGET_DIR:-target}/x86_64-unknown-linux-gnu/dist/driftless" \
			scripts/dist.sh || exit 1; done

image: ## Build the container image driftless:VERSION from target/dist-files; needs Docker
	deploy/image.sh

test: export DRIFTLESS_NO_SKIP = $(NO_SKIP)
test: ## Everything: format, lints, unit, integration and end-to-end tests on the real engine
	scripts/ensure-docker.sh
	scripts/test-tools.sh
	scripts/test-compose.sh "$${CARGO_TARGET_DIR:-target}/test-tools"
	$(MAKE) --no-print-directory lint
	$(MAKE) --no-print-directory unit
	$(MAKE) --no-print-directory browser
	$(MAKE) --no-print-directory e2e

# Every test program of every crate but `e2e`.
unit: ## Tests that need no Docker Engine
	PROPTEST_RNG_SEED=$(PROPTEST_RNG_SEED) RUST_TEST_THREADS=$(UNIT_THREADS) cargo test --locked --workspace --lib --bins --test '[!e]*'
	cargo test --locked --workspace --doc

# DRIFTLESS_SCREENSHOTS=FOLDER also writes a picture of each page.
browser: ## Test the page in Chromium: live changes, actions, keys, access, accessibility
	scripts/test-tools.sh browser "$${CARGO_TARGET_DIR:-target}/test-tools"
	cargo test --locked --workspace --test it -- --ignored --test-threads=2 browser::

e2e: ## End-to-end tests on the real engine
	E2E_THREADS=$(E2E_THREADS) scripts/e2e.sh

# Needs root. `make e2e` ends with them if it is run as root, but for the one with 300 containers, which takes minutes.
e2e-faults: ## Kill, stop and starve engines of its own while the agent works with them
	scripts/ensure-docker.sh
	cargo test --locked --test e2e -- --ignored --nocapture --test-threads=2 engine_faults::

# Needs root. `make e2e` ends with it if it is run as root.
e2e-swarm: ## Deploy to a Swarm of one node on an engine of its own, and change it by hand
	scripts/ensure-docker.sh
	scripts/test-tools.sh
	cargo test --locked --test e2e -- --ignored --nocapture swarm:: swarm_kubernetes:: swarm_images:: swarm_jobs:: swarm_requests:: swarm_memory::

# Needs root.
swarm-conformance: ## Adopt the stacks of tests/e2e/stacks, which `docker stack deploy` made, and compare field by field
	scripts/ensure-docker.sh
	scripts/test-tools.sh
	cargo test --locked --test e2e -- --ignored --nocapture swarm_conformance::

# Needs root, and about ten minutes. SWARM_HEARTBEAT=1s lets the managers notice a lost node sooner.
swarm-proof: ## Lose machines and links of a Swarm of three managers, with an agent on each, and print a table
	scripts/ensure-docker.sh
	scripts/test-tools.sh
	cargo test --locked --test e2e -- --ignored --nocapture --test-threads 1 swarm_managers:: swarm_load::

# Needs Docker Compose 2, and minutes. ONLY=a,b runs these projects alone.
differential: ## Compare every project of tests/e2e/projects with Docker Compose, field by field
	scripts/ensure-docker.sh
	scripts/test-tools.sh
	scripts/test-compose.sh "$${CARGO_TARGET_DIR:-target}/test-tools"
	cargo test --locked --test e2e -- --ignored --nocapture differential::every_project

corpus: ## Compare how the Compose files of the folder DRIFTLESS_COMPOSE_CORPUS are read with the reference
	cargo test --locked -p driftless-compose corpus -- --ignored

# Needs root, and fetches podman. ONLY=a,b runs these manifests alone.
differential-podman: ## Compare every manifest of tests/e2e/manifests with podman, from inside the containers
	scripts/ensure-docker.sh
	scripts/test-tools.sh
	scripts/test-podman.sh "$${CARGO_TARGET_DIR:-target}/test-tools"
	DRIFTLESS_NO_SKIP=podman cargo test --locked --test e2e -- --ignored --nocapture podman::every_pod

# The book is built where mdbook is: `make book` compiles it once. Without it, a test of `docs` follows the links.
lint: ## Check format, lints, the documentation of the code and the links of the book; warnings are errors
	cargo fmt --all --check
	cargo clippy --locked --workspace --all-targets --features driftless/otlp -- -D warnings
	RUSTDOCFLAGS="-D warnings" cargo doc --quiet --locked --workspace --no-deps --document-private-items
	@if PATH="$${CARGO_TARGET_DIR:-target}/test-tools/mdbook/bin:$$PATH" command -v mdbook >/dev/null; then scripts/book.sh; \
		else echo "lint: mdbook is missing, so the book was not built: make book" >&2; fi

book: ## Build the documents as a book with search in target/book, and check its links; compiles mdbook once
	scripts/book.sh install

recording: ## Record the demo again for the README: docs/images/demo.svg and demo.cast
	scripts/record.py docs/images/demo scripts/demo.sh

fmt: ## Format the code
	cargo fmt --all

# SCHEMATHESIS_EXAMPLES is the number of made-up requests for each route: 30, or 8 in the CI, which take about three minutes.
schemathesis: ## Try the API with schemathesis: no failure of the server, no answer that the OpenAPI document lacks
	scripts/test-schemathesis.sh install "$${CARGO_TARGET_DIR:-target}/schemathesis"
	SCHEMATHESIS="$${CARGO_TARGET_DIR:-target}/schemathesis/bin/schemathesis" \
		cargo test --locked --test it -- --ignored --nocapture openapi::schemathesis

deny: ## Check licences, duplicates, sources and advisories of dependencies; needs cargo-deny
	cargo deny --locked check bans licenses sources
	@if [ -n "$${CI:-}" ] || cargo deny --locked fetch db; then cargo deny --locked check advisories; \
		else echo "deny: advisories are not checked, their database cannot be reached" >&2; fi

# BENCH_ONLY=drift,push,webhook,rollout,idle,applications,large,page,proxy,planner,binary,render,noop,preview,git measures these parts and writes nothing.
# BENCH_ONLY=build measures builds, and only on request: scripts/measure-build.sh.
bench: ## Measure the published binary and write docs/benchmarks.md
ifeq ($(BENCH_ONLY),build)
	scripts/measure-build.sh
else
	scripts/ensure-docker.sh
	scripts/test-tools.sh
	scripts/test-compose.sh "$${CARGO_TARGET_DIR:-target}/test-tools"
	scripts/test-tools.sh proxies || echo "bench: haproxy or nginx could not be installed; their rows will be missing" >&2
	status=0; cargo bench --profile dist --locked --bench bench || status=$$?; scripts/test-clean.sh e2e-bench-; exit $$status
endif

# Needs root. CHAOS_ONLY=agent,engine,disk,files,network picks parts, CHAOS_SCALE=0.02 shortens them, CHAOS_SEED repeats.
chaos: ## Kill the agent and engines of its own, fill disks, damage files, disturb networks; write docs/reliability.md
	scripts/ensure-docker.sh
	scripts/test-tools.sh
	cargo bench --profile $(CHAOS_PROFILE) --locked --bench chaos

# Needs root. FLEET_CUT is the time in seconds for which the line to the collector is cut.
fleet-proof: ## Run a fleet of 25 agents: its collector is killed, its line cut; prints what was measured
	scripts/ensure-docker.sh
	scripts/test-tools.sh
	FLEET_CUT=$(FLEET_CUT) cargo test --locked --test e2e fleet_proof:: -- --ignored --nocapture

fuzz: ## Feed broken files, manifests, patches and schedules to all readers, for FUZZ_SECONDS
	FUZZ_SECONDS=$(FUZZ_SECONDS) cargo test --locked --test it fuzz::fuzz -- --exact --ignored --nocapture

soak: ## Run the property tests of the planner with SOAK_CASES new cases
	PROPTEST_CASES=$(SOAK_CASES) cargo test --locked -p driftless-plan --test it convergence

clean-tests: ## Remove containers, networks and volumes that interrupted tests left behind
	scripts/test-clean.sh e2e-
	scripts/test-clean.sh dl-docker-
