# The targets that people type; included by the Makefile.
SPIKES := $(patsubst bench/spikes/%.c,$(B)/spikes/%,$(wildcard bench/spikes/*.c))
GPU_TESTS := $(patsubst tests/gpu/%.c,$(B)/gpu-tests/%,$(wildcard tests/gpu/*.c))

# The study's programs; tables.c is what they share.
STUDY := $(patsubst bench/study/%.c,$(B)/study/%,\
  $(filter-out bench/study/tables.c,$(wildcard bench/study/*.c)))
$(B)/study/%: $(B)/bench/study/%.o $(B)/bench/study/tables.o $(B)/lib/libcuvil.a
	@mkdir -p $(@D)
	$(Q)$(CC) $(LDFLAGS) -o $@ $^ $(LDLIBS)

$(B)/spikes/%: $(B)/bench/spikes/%.o $(B)/lib/libcuvil.a
	@mkdir -p $(@D)
	$(Q)$(CC) $(LDFLAGS) -o $@ $< $(B)/lib/libcuvil.a $(LDLIBS)
# These travel to a GPU machine with the tree of `make dist`: of the tests'
# shared code, and of cmocka, only what a program uses is linked.
$(B)/tests/libsupport.a: $(TEST_OBJ)
	@mkdir -p $(@D)
	$(Q)rm -f $@ && ar rcs $@ $^
$(B)/gpu-tests/%: $(B)/tests/gpu/%.o $(B)/tests/libsupport.a $(CLI_OBJ) \
                  $(B)/lib/libcuvil.a
	@mkdir -p $(@D)
	$(Q)$(CC) $(LDFLAGS) -o $@ $< $(B)/tests/libsupport.a $(CLI_OBJ) \
	  $(B)/lib/libcuvil.a $(LDLIBS) -Wl,--as-needed -lcmocka

FUZZ_OBJ := $(patsubst %.c,$(B)/%.o,$(wildcard tests/fuzz/*.c))
$(FUZZ_OBJ): | $(GEN)/onnx.pb-c.h
$(B)/fuzz: $(FUZZ_OBJ) $(B)/tests/libsupport.a $(CLI_OBJ) $(B)/lib/libcuvil.a
	@mkdir -p $(@D)
	$(Q)$(CC) $(LDFLAGS) -o $@ $(FUZZ_OBJ) $(B)/tests/libsupport.a \
	  $(CLI_OBJ) $(B)/lib/libcuvil.a $(LDLIBS) -lcmocka

# Findings are kept in build/fuzz; build/asan/fuzz --replay FILE tries one.
FUZZ_SECONDS ?= 60
FUZZ_SEED ?= 1
fuzz:
	$(Q)bash tools/deps.sh
	$(Q)$(MAKE) --no-print-directory MODE=asan build/asan/fuzz
	$(Q)build/asan/fuzz --seconds $(FUZZ_SECONDS) --seed $(FUZZ_SEED)

spikes: $(SPIKES)
study: $(STUDY)
gpu-tests: $(GPU_TESTS)

help:
	@echo 'make            build the library and the commands into build/bin'
	@echo 'make deps       install what is missing to build and test'
	@echo 'make demo       set up, build, tune ResNet-50, compile and run it'
	@echo 'make check      set up, build, run every test that needs no GPU'
	@echo 'make check-full the same at length'
	@echo 'make check-gpu  every kernel family on the GPU of this machine'
	@echo 'make lint       layers, format, generated pages'
	@echo 'make docs       write the generated pages'
	@echo 'make fuzz       fuzz everything that reads a file (FUZZ_SECONDS=60)'
	@echo 'make dist       a relocatable tree in build/dist'
	@echo 'make install    into PREFIX (/usr/local), DESTDIR honoured'
	@echo 'make clean      remove build/'
	@echo 'MODE=release|debug|asan|ubsan  V=1 shows commands'

deps:
	$(Q)bash tools/deps.sh

# Set-up first, in a make of its own: which libraries and which CUDA there are
# is looked up when a makefile is read.
demo:
	$(Q)bash tools/deps.sh
	$(Q)$(MAKE) --no-print-directory all
	$(Q)bash tools/demo.sh

check-unit: tests $(BIN)
	$(Q)CUVIL_BIN=$(abspath $(B)/bin) bash tests/run.sh $(TESTS) \
	  $(wildcard tests/cli/*.sh)

check:
	$(Q)bash tools/deps.sh
	$(Q)bash tools/check.sh

check-full:
	$(Q)bash tools/deps.sh
	$(Q)CUVIL_TEST_FULL=1 bash tools/check.sh

check-gpu: gpu-tests all
	$(Q)CUVIL_TEST_JOBS=1 bash tests/run.sh $(GPU_TESTS)

lint:
	$(Q)bash tools/lint.sh

docs:
	$(Q)mkdir -p build && $(CC) -Iinclude tools/errors.c -o build/errors && \
	  build/errors > docs/errors.md

format:
	$(Q)git ls-files '*.c' '*.h' | xargs clang-format -i

dist: all spikes gpu-tests
	$(Q)bash tools/dist.sh $(B)

PREFIX ?= /usr/local
install: all
	install -d $(DESTDIR)$(PREFIX)/bin $(DESTDIR)$(PREFIX)/lib/pkgconfig \
	  $(DESTDIR)$(PREFIX)/include $(DESTDIR)$(PREFIX)/share/cuvil/recordings
	install -m 755 $(BIN) $(DESTDIR)$(PREFIX)/bin
	install -m 755 $(B)/lib/libcuvil.so $(DESTDIR)$(PREFIX)/lib/libcuvil.so.0
	ln -sf libcuvil.so.0 $(DESTDIR)$(PREFIX)/lib/libcuvil.so
	install -m 644 $(B)/lib/libcuvil.a $(DESTDIR)$(PREFIX)/lib
	sed 's|^prefix=.*|prefix=$(PREFIX)|' $(B)/lib/pkgconfig/cuvil.pc \
	  > $(DESTDIR)$(PREFIX)/lib/pkgconfig/cuvil.pc
	install -m 644 include/cuvil.h $(DESTDIR)$(PREFIX)/include
	for f in bench/recordings/*.t4.json.zst; do [ ! -e "$$f" ] || \
	  install -m 644 "$$f" $(DESTDIR)$(PREFIX)/share/cuvil/recordings; done

clean:
	rm -rf build


.PHONY: check-unit docs spikes study gpu-tests
