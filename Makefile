# One non-recursive makefile: every folder is a wildcard, every object depends
# on its headers by -MMD, every mode builds in its own folder.
#
#   make                 build the library and the commands (build/bin/)
#   make demo            set up, build, tune a real network, print its table
#   make check           set up, build, run all tests that need no GPU
#   make help            every target
MODE ?= release
V ?= 0
Q := $(if $(filter 1,$(V)),,@)
SHELL := /bin/bash

B := build/$(MODE)
GEN := build/gen

CUDA_HOME ?= $(patsubst %/include/nvrtc.h,%,$(firstword $(wildcard \
  /usr/local/cuda/include/nvrtc.h build/cuda/include/nvrtc.h) \
  build/cuda/include/nvrtc.h))
CC := gcc
# ccache makes rebuilding another mode or another checkout cheap; optional.
CCACHE := $(shell command -v ccache 2>/dev/null)

ROOMS := base gpu problem runtime db spaces kernels measure graph fusion \
         tuner compiler bench plots
PACKAGES := jansson sqlite3 libprotobuf-c libxxhash libzstd

WARN := -Wall -Wextra -Wmissing-prototypes -Wstrict-prototypes -Wvla \
        -Wwrite-strings -fno-common
WERROR ?= -Werror
OPT_release := -O2 -g
OPT_debug := -O0 -g3
# The sanitizers' own code makes the compiler see truncations that cannot be.
OPT_asan := -O1 -g1 -Wno-format-truncation -fsanitize=address,undefined \
            -fno-sanitize-recover=undefined -fno-omit-frame-pointer
OPT_ubsan := -O1 -g -Wno-format-truncation -fsanitize=undefined -fno-sanitize-recover=undefined
PKG_CFLAGS = $(shell pkg-config --cflags $(PACKAGES) 2>/dev/null)
PKG_LIBS = $(shell pkg-config --libs $(PACKAGES) 2>/dev/null)

CPPFLAGS := -D_GNU_SOURCE -Iinclude -I. -I$(GEN)
CFLAGS := -std=c11 $(OPT_$(MODE)) $(WARN) $(WERROR) -fPIC \
          -fvisibility=hidden -pthread
LDFLAGS := $(filter -fsanitize=% -fno-sanitize%,$(OPT_$(MODE))) -pthread
LDLIBS = $(PKG_LIBS) -ldl -lm

SRC := $(foreach r,$(ROOMS),$(wildcard $(r)/*.c) $(wildcard $(r)/*/*.c))
# Programs and scripts that stand beside the rooms but are not the library.
SRC := $(filter-out bench/models/% bench/peers/% bench/spikes/% bench/study/%,$(SRC))
OBJ := $(SRC:%.c=$(B)/%.o) $(B)/gen/onnx.pb-c.o $(B)/gen/embedded.o
CLI_MAIN := $(wildcard cli/cuvil-*.c)
CLI_COMMON := $(filter-out $(CLI_MAIN),$(wildcard cli/*.c))
CLI_OBJ := $(CLI_COMMON:%.c=$(B)/%.o)
BIN := $(CLI_MAIN:cli/%.c=$(B)/bin/%)
TEST_SRC := $(wildcard tests/unit/*_test.c)
TEST_COMMON := $(wildcard tests/support/*.c)
TEST_OBJ := $(TEST_COMMON:%.c=$(B)/%.o)
TESTS := $(TEST_SRC:tests/unit/%.c=$(B)/tests/%)
EMBED := $(wildcard spaces/*.json) $(wildcard kernels/*/*.cu) \
         $(wildcard kernels/*/*.cuh) $(wildcard problem/checked*.h) \
         $(wildcard plots/*.gp)

.PHONY: all deps demo check check-full check-gpu lint fuzz dist install clean \
        help tests fakes format
.DELETE_ON_ERROR:
.SECONDARY:

all: $(BIN) $(B)/lib/libcuvil.a $(B)/lib/libcuvil.so $(B)/lib/pkgconfig/cuvil.pc
ifeq ($(MODE),release)
	$(Q)mkdir -p build/bin && for f in $(BIN); do \
	  ln -sf ../release/bin/$$(basename $$f) build/bin/; done
endif

# ---- generated
$(GEN)/onnx.pb-c.c: /usr/include/onnx/onnx.proto
	$(Q)mkdir -p $(GEN) && cp $< $(GEN)/onnx.proto && \
	  protoc-c --proto_path=$(GEN) --c_out=$(GEN) $(GEN)/onnx.proto
$(GEN)/onnx.pb-c.h: $(GEN)/onnx.pb-c.c ;
$(GEN)/embedded.c: $(EMBED) tools/embed.sh Makefile
	$(Q)mkdir -p $(GEN) && bash tools/embed.sh $(EMBED) > $@

# ---- objects
$(B)/gen/%.o: $(GEN)/%.c
	@mkdir -p $(@D)
	$(Q)$(CCACHE) $(CC) $(CPPFLAGS) -std=c11 $(OPT_$(MODE)) -w -fPIC \
	  -fvisibility=hidden \
	  -MMD -MP -c $< -o $@
$(B)/gpu/%.o: CPPFLAGS += -isystem $(CUDA_HOME)/include
# Only the importer and the model builder see protobuf.
$(filter $(B)/graph/%,$(OBJ)) $(TEST_OBJ): | $(GEN)/onnx.pb-c.h
$(TEST_SRC:%.c=$(B)/%.o): | $(GEN)/onnx.pb-c.h
$(B)/%.o: %.c
	@mkdir -p $(@D)
	$(if $(filter 1,$(V)),,@echo "  CC  $<")
	$(Q)$(CCACHE) $(CC) $(CPPFLAGS) $(PKG_CFLAGS) $(CFLAGS) -MMD -MP -c $< -o $@

# ---- libraries and programs
$(B)/lib/libcuvil.a: $(OBJ)
	@mkdir -p $(@D)
	$(Q)rm -f $@ && ar rcs $@ $^
$(B)/lib/libcuvil.so: $(OBJ)
	@mkdir -p $(@D)
	$(Q)$(CC) -shared $(LDFLAGS) -Wl,-soname,libcuvil.so.0 \
	  -Wl,-rpath,'$$ORIGIN' -o $@ $^ $(LDLIBS)
$(B)/lib/pkgconfig/cuvil.pc: tools/cuvil.pc.in Makefile
	@mkdir -p $(@D)
	$(Q)sed -e 's|@VERSION@|$(shell sed -n \
	  's/.define CUVIL_VERSION "\(.*\)"/\1/p' include/cuvil.h)|' \
	  -e 's|@PREFIX@|$(or $(PREFIX),/usr/local)|' $< > $@
$(B)/bin/%: $(B)/cli/%.o $(CLI_OBJ) $(B)/lib/libcuvil.a
	@mkdir -p $(@D)
	$(Q)$(CC) $(LDFLAGS) -Wl,-rpath,'$$ORIGIN/../lib' -o $@ $< $(CLI_OBJ) \
	  $(B)/lib/libcuvil.a $(LDLIBS)
$(B)/tests/%: $(B)/tests/unit/%.o $(TEST_OBJ) $(CLI_OBJ) $(B)/lib/libcuvil.a
	@mkdir -p $(@D)
	$(Q)$(CC) $(LDFLAGS) -o $@ $< $(TEST_OBJ) $(CLI_OBJ) \
	  $(B)/lib/libcuvil.a $(LDLIBS) -lcmocka

# A CUDA driver for tests, in the driver's place.
FAKES := $(patsubst tests/fake/%.c,$(B)/tests/%.so,$(wildcard tests/fake/*.c))
$(B)/tests/%.so: tests/fake/%.c
	@mkdir -p $(@D)
	$(Q)$(CC) $(CPPFLAGS) -isystem $(CUDA_HOME)/include $(CFLAGS) $(LDFLAGS) \
	  -MMD -MP -shared -o $@ $<

fakes: $(FAKES)
tests: $(TESTS) $(FAKES)

-include $(shell find build/$(MODE) -name '*.d' 2>/dev/null)

# ---- what people type
include tools/targets.mk
