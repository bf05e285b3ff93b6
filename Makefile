# make demo        set everything up, optimize one example, print the outcome table and the report's path
# make test        set everything up, run every test that needs no GPU (what CI runs)
# make test-long   the same with the long forms: every case, 20 kills, every bad input
# make bench       measure all examples and twins; the table goes to docs/results (hours)
# make format      apply .clang-format to the C++ sources
# PYTHON=python3.12 make demo   uses another Python than python3.11
SHELL := bash
export PYTHON

.PHONY: setup demo test test-long bench format clean
setup:
	@scripts/setup.sh

demo: setup
	@scripts/demo.sh

test: setup
	@scripts/test.sh

test-long: setup
	@scripts/test.sh --long

bench: setup
	@tools/bench_examples

format:
	@find src apps tests -name '*.h' -o -name '*.cc' | xargs clang-format -i

clean:
	rm -rf build .venv
