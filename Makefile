# The commands of the house. Each is a script under scripts/, so that it can
# be read, and run without make.

.PHONY: help run install test lint bench scenario attack kube docs

help: ## Say what each target does.
	@grep -E '^[a-z]+: .*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):.*## /make \1	/' | expand -t 14

run: ## Build wellhead and start the demo: simulated upstreams behind the real proxy.
	@scripts/run

install: ## Build wellhead for use and put it on the PATH, as one stripped binary.
	@scripts/install

test: ## Install what the tests need, run every test, say what was left out.
	@scripts/test

lint: ## Formatting, clippy, rustdoc, licences, house rules, generated pages.
	@scripts/lint

bench: ## CPU per request and per notification beside nginx in the same run; results go to benches/runs.
	@scripts/bench
	@scripts/bench subscribers

scenario: ## Public load comparison with k6, faults and an outage; ends with 1 when a claim fails.
	@scripts/scenario

attack: ## Each known attack on the real binary, with a well-behaved caller beside it.
	@scripts/attack

kube: ## The Helm chart and the kustomize base before a real kube-apiserver; the first run builds it in 20 minutes.
	@scripts/kube

docs: ## Write the generated pages under docs/ anew.
	@scripts/docs
