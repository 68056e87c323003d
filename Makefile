# make run: a broker to try; make test: everything a change must pass. `make help` lists all.
PYTHON ?= python3
VENV := .venv
# The tests of a file together (tests/support/spread.py). Most of them wait for servers to start, so
# there are more of them at a time than processors.
WAITING := -n 6 --dist loadfile -m "not stock_only and not more"
# On the reactor itself: a test that hits its limit costs its process, and the next one gets another.
REACTOR := -p twisted -n 1 --timeout-method=thread
# What `make pypy` runs of servers, beside unit tests and simulations: what shows that nothing is lost,
# doubled or misunderstood.
PYPY_SERVERS := $(addprefix tests/interop/test_,acting.py auto_switch.py classic_proxy.py \
    container.py controller_mode.py controllers.py dledger.py dledger_brokers.py \
    grpc_scenarios.py order.py pop.py pull.py push.py query.py replication.py restart.py retry.py \
    send.py shared_ports.py sql_filters.py timers.py tls.py topics.py transactions.py) \
    tests/crash
BIN := $(VENV)/bin
# Where it is set, each server that a test starts compiles all its modules anew: half of its start.
unexport PYTHONDONTWRITEBYTECODE
# On PyPy: short steps of its garbage collector, for all servers that are started from here.
export PYPY_GC_INCREMENT_STEP ?= 1M
PIP := $(BIN)/python -m pip --disable-pip-version-check --retries 5 --timeout 60 install -q \
    --config-settings editable_mode=compat
STAMP := $(VENV)/.stamp
WITH_TESTS := .[test,spark]
# The Python that things are installed for: of a .venv that is there, its own.
INSTALLING = $(if $(wildcard $(BIN)/python),$(BIN)/python,$(PYTHON))
# On PyPy what has to be compiled, where it can be.
TO_RUN = .$(shell $(INSTALLING) tools/check_machine.py extras)

# A registry that refused or broke off is asked again; what was downloaded is kept by pip.
define install
for pause in 5 15 45; do \
    $(PIP) -e "$(1)" && exit 0; echo "pip failed; again in $$pause s" >&2; sleep $$pause; \
done; $(PIP) -e "$(1)"
endef

.PHONY: help no-copies install-spark run try-controller try-acting test lint types imports unit reactor servers crash jars interop interop-more pypy spark proto bench clean

help:
	@sed -n 's/^#: //p' $(MAKEFILE_LIST)

# What was installed as a copy, as by "pip install .", would be run for ever: it is replaced.
COPIES := $(wildcard $(VENV)/lib/p*3*/site-packages/rocketmq_tw)
$(STAMP)-run $(STAMP)-test $(STAMP)-spark: $(if $(COPIES),no-copies)
no-copies:

$(STAMP)-run: setup.cfg pyproject.toml
	@$(INSTALLING) tools/check_machine.py run
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(call install,$(TO_RUN))
	@touch $@

$(STAMP)-test: setup.cfg pyproject.toml
	@$(INSTALLING) tools/check_machine.py test
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(call install,$(WITH_TESTS))
	@touch $@ $(STAMP)-run

$(STAMP)-spark: setup.cfg pyproject.toml
	@$(INSTALLING) tools/check_machine.py spark
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(call install,.[spark])
	@touch $@ $(STAMP)-run

#: make install-spark  install into .venv what rmqspark and Spark's jobs need
install-spark: $(STAMP)-spark

#: make run      install into .venv and start a name server, broker and proxy on 127.0.0.1;
#:               ARGS='-o namesrvListenPort=9877' and so on for others than its ports and settings
run: $(STAMP)-run
	@trap 'kill $$server 2>/dev/null' INT TERM HUP; \
	$(BIN)/twistd -n rmq-standalone --enable-proxy $(ARGS) & server=$$!; \
	wait $$server; wait $$server; case $$? in 0|129|130|143) ;; *) exit 1; esac

#: make try-controller  three controllers and three brokers that elect their master, and what to type
try-controller: $(STAMP)-run
	@$(BIN)/python -m tools.try_controller

#: make try-acting  two groups whose slaves act for their masters, and what to type
try-acting: $(STAMP)-run
	@$(BIN)/python -m tools.try_acting

#: make test     all of the following up to servers: everything a change must pass
# mypy has one processor for a minute or two: the other one goes on with what comes next. The jars
# are fetched beside the unit tests.
test: $(STAMP)-test
	@$(MAKE) -j 2 lint types imports reactor unit jars
	@$(MAKE) servers

#: make lint     ruff: format and lint; whether generated modules are current
lint: $(STAMP)-test
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/python -m tools.proto --check

#: make types    mypy over all, tests and tools too; strict for the pure rooms
types: $(STAMP)-test
	$(BIN)/mypy

#: make imports  the directions of import between the rooms
imports: $(STAMP)-test
	$(BIN)/lint-imports

#: make unit     pure tests and simulations
unit: $(STAMP)-test
	$(BIN)/python -m pytest -n 2 --dist worksteal tests/unit tests/sim

#: make reactor  real sockets and Twisted's reactor itself, in one process
reactor: $(STAMP)-test
	$(BIN)/python -m pytest $(REACTOR) tests/reactor

#: make servers  crash, interop and spark at once: what waits for one leaves room for the others
servers: jars
	$(BIN)/python -m pytest $(WAITING) tests/interop tests/crash tests/spark

#: make crash    power loss in memory, kill -9 of real brokers, random bytes
crash: $(STAMP)-test
	$(BIN)/python -m pytest $(WAITING) tests/crash

#: make jars     fetch the stock jars through Maven, and stock's gRPC clients; archive the classes
jars: $(STAMP)-test
	$(BIN)/python -m tests.support.jars
	$(BIN)/python -m tests.support.grpc_clients
	$(BIN)/python -m tests.support.class_archives

#: make interop  the stock jars against ours, both ways
interop: jars
	$(BIN)/python -m pytest $(WAITING) tests/interop

#: make interop-more  cases of interop on stock alone, and combinations that make test leaves out
interop-more: jars
	$(BIN)/python -m pytest $(WAITING) -m "stock_only or more" tests/interop

#: make pypy     unit tests, simulations, servers on PyPy; fetches one unless PYPY=PATH names it
pypy: jars
	server=$$($(BIN)/python -m tests.support.pypy) && \
	$$server -m pytest -n 2 --dist worksteal tests/unit tests/sim && \
	SERVER_PYTHON=$$server $(BIN)/python -m pytest $(WAITING) $(PYPY_SERVERS)

#: make spark    real Spark on real brokers
spark: jars
	$(BIN)/python -m pytest $(WAITING) tests/spark

#: make proto    the Python modules of gRPC's messages anew, with grpcio-tools in a venv of its own
proto:
	@$(PYTHON) -m tools.proto

#: make bench    ours beside a warm stock 5.3.3, two hours; BENCH="--quick" 3, "--case NAME" one
bench: $(STAMP)-test
	$(BIN)/python -m tools.bench $(BENCH)

#: make clean    remove .venv and build
clean:
	rm -rf $(VENV) build
