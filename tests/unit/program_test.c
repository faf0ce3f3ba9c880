/* program_test.c - programs survive JSON unchanged, and no damaged JSON comes
 * through as something that a device would choke on. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
/* cmocka wants the standard headers first. */
#include <cmocka.h>

#include "base/clock.h"
#include "base/dtype.h"
#include "runtime/program.h"

#define OK(expression) assert_int_equal((expression), CUVIL_OK)

/* One step of each kind and one argument of each kind. */
static struct cuvil_program *build(void) {
  struct cuvil_program *program;
  struct cuvil_step *step;
  int x, y, space, flags, module;
  OK(cuvil_program_create(&program));
  OK(cuvil_program_add_buffer(program, CUVIL_BUFFER_OPERAND, 0, 4096, &x));
  OK(cuvil_program_add_buffer(program, CUVIL_BUFFER_OPERAND, 2, 4096, &y));
  OK(cuvil_program_add_buffer(program, CUVIL_BUFFER_WORKSPACE, 9, 512, &space));
  OK(cuvil_program_add_buffer(program, CUVIL_BUFFER_ZEROED, 9, 256, &flags));
  OK(cuvil_program_add_module(program, "__global__ void k() {}", "sm_90a",
                              "-DX=1", &module));
  OK(cuvil_program_add_step(program, CUVIL_STEP_LAUNCH, &step));
  strcpy(step->entry, "k");
  step->module = module;
  for (int i = 0; i < 3; i++) {
    step->grid[i] = 4;
    step->block[i] = 2;
    step->cluster[i] = i == 0 ? 2 : 1;
  }
  step->shared_bytes = 70000;
  step->programmatic = true;
  struct cuvil_tensor_map map = {
      .dtype = CUVIL_F16,
      .rank = 2,
      .dims = {32, 60},
      .strides = {64},
      .box = {32, 8},
      .element_strides = {1, 1},
      .swizzle = 64,
      .l2_promotion = 128,
  };
  OK(cuvil_step_arg_tensor_map(step, x, &map));
  OK(cuvil_step_arg_buffer(step, y, 256));
  OK(cuvil_step_arg_i32(step, -7));
  OK(cuvil_step_arg_i64(step, INT64_MIN));
  OK(cuvil_step_arg_f32(step, 0.1));
  OK(cuvil_step_arg_f32(step, -INFINITY));
  OK(cuvil_program_add_step(program, CUVIL_STEP_LIBRARY, &step));
  strcpy(step->library, "cublaslt");
  step->call = json_pack("{s:s, s:f}", "op", "matmul", "alpha", 0.1);
  step->binding_count = 2;
  step->bindings[0] = x;
  step->bindings[1] = space;
  OK(cuvil_program_add_step(program, CUVIL_STEP_MEMSET, &step));
  step->buffer = space;
  step->bytes = 512;
  step->value = 255;
  OK(cuvil_program_add_step(program, CUVIL_STEP_COPY, &step));
  step->source_buffer = x;
  step->source_offset = 96;
  step->buffer = y;
  step->bytes = 4000;
  return program;
}

static void test_round_trip(void **state) {
  (void)state;
  struct cuvil_program *program = build(), *back;
  json_t *json, *again;
  assert_int_equal(cuvil_program_workspace(program), 768);
  OK(cuvil_program_to_json(program, &json));
  OK(cuvil_program_from_json(json, "test", &back));
  OK(cuvil_program_to_json(back, &again));
  assert_true(json_equal(json, again));
  assert_null(back->modules[0].source);
  assert_string_equal(back->modules[0].hash, program->modules[0].hash);
  assert_string_equal(back->modules[0].options, "-DX=1");
  assert_int_equal(back->step_count, 4);
  const struct cuvil_step *launch = &back->steps[0];
  assert_int_equal(launch->arg_count, 6);
  assert_memory_equal(&launch->args[0].map, &program->steps[0].args[0].map,
                      sizeof launch->args[0].map);
  assert_int_equal(launch->args[1].buffer, 1);
  assert_int_equal(launch->args[1].offset, 256);
  assert_true(launch->args[3].value.i == INT64_MIN);
  assert_true(launch->args[4].value.f == (double)0.1f);
  assert_true(isinf(launch->args[5].value.f) && launch->args[5].value.f < 0);
  assert_int_equal(back->buffers[3].role, CUVIL_BUFFER_ZEROED);
  json_decref(json);
  json_decref(again);
  cuvil_program_destroy(program);
  cuvil_program_destroy(back);
}

static void test_hash(void **state) {
  (void)state;
  static const char *const texts[][3] = {{"a", "sm_80", "b"},
                                         {"a", "sm_90", "b"},
                                         {"ab", "sm_80", ""},
                                         {"a", "sm_80", NULL}};
  struct cuvil_program *program;
  OK(cuvil_program_create(&program));
  for (int i = 0; i < 4; i++)
    OK(cuvil_program_add_module(program, texts[i][0], texts[i][1], texts[i][2],
                                NULL));
  OK(cuvil_program_add_module(program, "a", "sm_80", "b", NULL));
  for (int i = 0; i < 4; i++)
    for (int j = 0; j < i; j++)
      assert_string_not_equal(program->modules[i].hash,
                              program->modules[j].hash);
  assert_string_equal(program->modules[0].hash, program->modules[4].hash);
  assert_int_equal(strlen(program->modules[0].hash), 32);
  cuvil_program_destroy(program);
}

static void test_too_much(void **state) {
  (void)state;
  struct cuvil_program *program = build();
  struct cuvil_step *step = &program->steps[0];
  assert_int_equal(cuvil_step_arg_i32(step, (int64_t)1 << 31),
                   CU_ERR_INVALID_ARGUMENT);
  while (step->arg_count < CUVIL_PROGRAM_MAX_ARGS)
    OK(cuvil_step_arg_i32(step, step->arg_count));
  assert_int_equal(cuvil_step_arg_i32(step, 0), CU_ERR_INVALID_ARGUMENT);
  OK(cuvil_program_check(program, "test"));
  cuvil_program_destroy(program);
}

/* A path of keys and indices into the program's JSON, and what to put there;
 * every one must be refused. */
static const struct {
  const char *path, *value;
} refused[] = {
    {"buffers/0/role", "\"operands\""},
    {"buffers/0/operand", "-1"},
    {"buffers/0/operand", "100000"},
    {"buffers/0/bytes", "-1"},
    {"buffers/0/bytes", "9223372036854775807"},
    {"modules/0/hash", "\"00\""},
    {"modules/0/hash", "\"0123456789abcdef0123456789abcdeg\""},
    {"modules/0/arch", "\"compute_90\""},
    {"modules/0/arch", "\"sm_90; rm\""},
    {"modules", "{}"},
    {"steps/0/kind", "\"jump\""},
    {"steps/0/module", "1"},
    {"steps/0/module", "-1"},
    {"steps/0/entry", "\"\""},
    {"steps/0/entry", "\"k k\""},
    {"steps/0/grid", "[1,1]"},
    {"steps/0/grid/0", "0"},
    {"steps/0/grid/0", "3"},
    {"steps/0/grid/1", "65536"},
    {"steps/0/grid/0", "4294967296"},
    {"steps/0/block/0", "1024"},
    {"steps/0/block/2", "65"},
    {"steps/0/cluster/0", "32"},
    {"steps/0/cluster/1", "0"},
    {"steps/0/shared", "262145"},
    {"steps/0/programmatic", "1"},
    {"steps/0/args", "null"},
    {"steps/0/args/0/buffer", "4"},
    {"steps/0/args/0/offset", "512"},
    {"steps/0/args/0/tensor_map/dtype", "10"},
    {"steps/0/args/0/tensor_map/dims", "[]"},
    {"steps/0/args/0/tensor_map/dims/1", "65"},
    {"steps/0/args/0/tensor_map/dims/0", "0"},
    {"steps/0/args/0/tensor_map/strides/0", "66"},
    {"steps/0/args/0/tensor_map/strides/0", "9223372036854775792"},
    {"steps/0/args/0/tensor_map/box/0", "257"},
    {"steps/0/args/0/tensor_map/element_strides/0", "0"},
    {"steps/0/args/0/tensor_map/swizzle", "16"},
    {"steps/0/args/0/tensor_map/l2_promotion", "32"},
    {"steps/0/args/1/offset", "4097"},
    {"steps/0/args/2/i32", "2147483648"},
    {"steps/0/args/4/f32_bits", "0.5"},
    {"steps/1/library", "\"cufft\""},
    {"steps/1/library", "\"cublasltcublasltcublaslt\""},
    {"steps/1/call", "[]"},
    {"steps/1/bindings/1", "4"},
    {"steps/1/bindings", "[0,0,0,0,0,0,0,0,0]"},
    {"steps/2/value", "256"},
    {"steps/2/bytes", "513"},
    {"steps/2/offset", "1"},
    {"steps/2/buffer", "4"},
    {"steps/3/source_buffer", "4"},
    {"steps/3/source_offset", "97"},
    {"steps/3/source_offset", "9223372036854775807"},
    {"steps/3/offset", "97"},
};

static void replace(json_t *json, const char *path, const char *value) {
  char copy[128], *rest = NULL;
  strcpy(copy, path);
  json_t *with = json_loads(value, JSON_DECODE_ANY, NULL);
  assert_non_null(with);
  char *key = strtok_r(copy, "/", &rest);
  for (char *next; (next = strtok_r(NULL, "/", &rest)); key = next)
    json = json_is_array(json) ? json_array_get(json, (size_t)atoi(key))
                               : json_object_get(json, key);
  assert_non_null(json);
  if (json_is_array(json))
    assert_int_equal(json_array_set_new(json, (size_t)atoi(key), with), 0);
  else
    assert_int_equal(json_object_set_new(json, key, with), 0);
}

static void test_refusals(void **state) {
  (void)state;
  struct cuvil_program *program = build(), *back;
  for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
    json_t *json;
    OK(cuvil_program_to_json(program, &json));
    replace(json, refused[i].path, refused[i].value);
    enum cuvil_status status =
        cuvil_program_from_json(json, "torn.plan", &back);
    if (status != CU_ERR_PARSE && status != CU_ERR_INVALID_ARGUMENT)
      fail_msg("%s = %s was answered with %s", refused[i].path,
               refused[i].value, cuvil_status_name(status));
    assert_null(back);
    assert_non_null(strstr(cuvil_last_error(), "torn.plan"));
    json_decref(json);
  }
  cuvil_program_destroy(program);
}

/* Whatever one wrong byte makes of it: a refusal or a whole program. */
static void test_wrong_bytes(void **state) {
  (void)state;
  struct cuvil_program *program = build();
  struct cuvil_buf text = {0};
  json_t *json;
  OK(cuvil_program_to_json(program, &json));
  OK(cuvil_json_print(json, &text));
  json_decref(json);
  struct cuvil_rng rng = {7};
  int refusals = 0;
  for (size_t i = 0; i < text.size; i++) {
    struct cuvil_program *back;
    char kept = text.data[i];
    text.data[i] = (char)(kept ^ (1 << cuvil_rng_below(&rng, 7)));
    enum cuvil_status status =
        cuvil_json_parse(text.data, text.size, "torn", &json);
    if (status == CUVIL_OK) {
      status = cuvil_program_from_json(json, "torn", &back);
      json_decref(json);
      if (status == CUVIL_OK) OK(cuvil_program_check(back, "torn"));
      cuvil_program_destroy(back);
    }
    refusals += status != CUVIL_OK;
    text.data[i] = kept;
  }
  assert_true(refusals > (int)text.size / 2);
  cuvil_buf_free(&text);
  cuvil_program_destroy(program);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_round_trip),  cmocka_unit_test(test_hash),
      cmocka_unit_test(test_too_much),    cmocka_unit_test(test_refusals),
      cmocka_unit_test(test_wrong_bytes),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
