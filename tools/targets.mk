# The targets that people type; included by the Makefile.
check-unit: tests $(BIN)
	$(Q)bash tests/run.sh $(TESTS) $(wildcard tests/cli/*.sh)

check: check-unit

lint:
	$(Q)bash tools/lint.sh

format:
	$(Q)git ls-files '*.c' '*.h' | xargs clang-format -i

clean:
	rm -rf build
.PHONY: check-unit
