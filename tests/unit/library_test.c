/* library_test.c - library steps on fake libraries that compute by the real
 * ones' rules: row-major calls come out right for every layout, choices can be
 * rebuilt from what is stored of them, and a plan whose library has changed
 * runs its fallback. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
/* cmocka wants the standard headers first. */
#include <cmocka.h>

#include "tests/support/fake_gpu.h"

#define OK(expression) assert_int_equal((expression), CUVIL_OK)

static struct cuvil_gpu *gpu;
static struct cuvil_gpu_stream *stream;

static int set_up(void **state) {
  (void)state;
  fake_gpu_use();
  fake_gpu_use_libraries();
  fake_gpu_reset(0, 0, 90);
  if (cuvil_gpu_open(0, &gpu) != CUVIL_OK) return -1;
  return cuvil_gpu_stream_create(gpu, &stream) == CUVIL_OK ? 0 : -1;
}

static int tear_down(void **state) {
  (void)state;
  cuvil_gpu_stream_destroy(stream);
  cuvil_gpu_close(gpu);
  return fake_gpu_live();
}

static json_t *parse(const char *format, ...)
    __attribute__((format(printf, 1, 2)));
static json_t *parse(const char *format, ...) {
  char text[1024];
  va_list args;
  va_start(args, format);
  vsnprintf(text, sizeof text, format, args);
  va_end(args);
  json_t *json = json_loads(text, 0, NULL);
  assert_non_null(json);
  return json;
}

/* The fake driver's memory is the host's. */
static float *device(size_t floats, uint64_t *out) {
  OK(cuvil_gpu_alloc(gpu, floats * 4, out));
  float *data = (float *)(uintptr_t)*out;
  for (size_t i = 0; i < floats; i++)
    data[i] = (float)((i * 37 + 11) % 23) / 4 - 2.5f;
  return data;
}

static void test_versions(void **state) {
  (void)state;
  assert_string_equal(cuvil_gpu_env(gpu)->cublaslt, "13.1.0");
  assert_string_equal(cuvil_gpu_env(gpu)->cudnn, "9.19.0");
  char version[8] = "x";
  cuvil_library_version("cufft", version, sizeof version);
  assert_string_equal(version, "");
}

/* ---- cuBLASLt */

enum { M = 3, N = 5, K = 4, BATCH = 2 };

static void one_matmul(bool trans_a, bool trans_b, bool full) {
  int lda = (trans_a ? M : K) + 1, ldb = (trans_b ? K : N) + 2, ldd = N + 3;
  int sa = 100, sb = 110, sd = 120;
  uint64_t at[6];
  float *a = device(256, &at[0]), *b = device(256, &at[1]);
  float *c = device(256, &at[2]), *d = device(256, &at[3]);
  float *bias = device(N, &at[4]);
  json_t *call = parse(
      "{\"op\":\"matmul\",\"m\":%d,\"n\":%d,\"k\":%d,"
      "\"a\":{\"dtype\":\"f32\",\"trans\":%s,\"ld\":%d},"
      "\"b\":{\"dtype\":\"f32\",\"trans\":%s,\"ld\":%d},"
      "\"c\":{\"dtype\":\"f32\",\"ld\":%d},\"d\":{\"dtype\":\"f32\",\"ld\":%d},"
      "\"compute\":\"f32\",\"epilogue\":\"%s\",\"alpha\":0.5,\"beta\":%s,"
      "\"batch\":%d,\"strides\":[%d,%d,%d,%d]}",
      M, N, K, trans_a ? "true" : "false", lda, trans_b ? "true" : "false", ldb,
      ldd, ldd, full ? "relu_bias" : "default", full ? "2.0" : "0.0", BATCH, sa,
      sb, sd, sd);
  struct cuvil_library_call *prepared;
  OK(cuvil_library_prepare(gpu, "cublaslt", call, &prepared));
  uint64_t plain[] = {at[0], at[1], at[3], 0};
  uint64_t all[] = {at[0], at[1], at[2], at[3], at[4], 0};
  OK(cuvil_library_run(prepared, full ? all : plain, full ? 6 : 4, stream));
  for (int l = 0; l < BATCH; l++)
    for (int i = 0; i < M; i++)
      for (int j = 0; j < N; j++) {
        float sum = 0;
        for (int k = 0; k < K; k++)
          sum += a[l * sa + (trans_a ? k * lda + i : i * lda + k)] *
                 b[l * sb + (trans_b ? j * ldb + k : k * ldb + j)];
        sum *= 0.5f;
        if (full) sum += 2 * c[l * sd + i * ldd + j] + bias[j];
        if (full && sum < 0) sum = 0;
        assert_true(fabsf(sum - d[l * sd + i * ldd + j]) < 1e-4f);
      }
  assert_int_equal(cuvil_library_run(prepared, plain, 3, stream),
                   CU_ERR_INVALID_ARGUMENT);
  cuvil_library_call_destroy(prepared);
  for (int i = 0; i < 5; i++)
    cuvil_gpu_free(gpu, at[i]);
  json_decref(call);
}

static void test_matmul(void **state) {
  (void)state;
  for (int i = 0; i < 8; i++)
    one_matmul(i & 1, i & 2, i & 4);
}

static json_t *small_matmul(void) {
  return parse(
      "{\"op\":\"matmul\",\"m\":4,\"n\":4,\"k\":4,"
      "\"a\":{\"dtype\":\"f32\",\"ld\":4},\"b\":{\"dtype\":\"f32\",\"ld\":4},"
      "\"d\":{\"dtype\":\"f32\",\"ld\":4},\"compute\":\"f32\"}");
}

static enum cuvil_status try_call(const json_t *call) {
  struct cuvil_library_call *prepared;
  CUVIL_TRY(cuvil_library_prepare(gpu, "cublaslt", call, &prepared));
  cuvil_library_call_destroy(prepared);
  return CUVIL_OK;
}

static void test_matmul_choices(void **state) {
  (void)state;
  json_t *call = small_matmul(), *choices;
  OK(cuvil_library_choices(gpu, "cublaslt", call, 2, &choices));
  assert_int_equal(json_array_size(choices), 2);
  json_t *first = json_array_get(choices, 0);
  json_t *algorithm = json_object_get(first, "algorithm");
  assert_int_equal(json_integer_value(json_object_get(algorithm, "id")), 8);
  assert_int_equal(json_integer_value(json_object_get(first, "workspace")),
                   4096);
  const char *data = json_string_value(json_object_get(algorithm, "data"));
  assert_non_null(data);
  assert_int_equal(strlen(data), 128);
  OK(try_call(first));
  /* Of another version the bytes mean nothing; the values do not suffice. */
  json_object_set_new(algorithm, "version", json_integer(120400));
  assert_int_equal(try_call(first), CU_ERR_LIBRARY);
  assert_non_null(strstr(cuvil_last_error(), "not supported"));
  json_t *second = json_array_get(choices, 1);
  algorithm = json_object_get(second, "algorithm");
  assert_int_equal(json_integer_value(json_object_get(algorithm, "tile")), 15);
  assert_null(json_object_get(algorithm, "data"));
  OK(try_call(second));
  json_object_set_new(algorithm, "tile", json_integer(14));
  assert_int_equal(try_call(second), CU_ERR_LIBRARY);
  json_decref(choices);
  OK(cuvil_library_choices(gpu, "cublaslt", call, 1, &choices));
  assert_int_equal(json_array_size(choices), 1);
  json_decref(choices);
  json_decref(call);
}

/* What the heuristic leaves out: nearest to its answers first, each of them
 * once, each usable as it is written, within the workspace. */
static void test_matmul_enumerated(void **state) {
  (void)state;
  static const char *const settings[] = {"id",      "tile",      "stages",
                                         "split_k", "reduction", "swizzle",
                                         "custom",  "cluster"};
  json_t *call = small_matmul(), *choices, *again;
  OK(cuvil_library_choices(gpu, "cublaslt", call, 200, &choices));
  /* Algorithm 7 with tile 15: three stages, swizzle, whole or in 7 splits, and
   * algorithm 8 as the heuristic has it. */
  size_t count = json_array_size(choices);
  assert_int_equal(count, 3 * 2 * 8 + 1);
  int before = 0;
  json_t *named = json_object_get(json_array_get(choices, 1), "algorithm");
  for (size_t i = 2; i < count; i++) {
    json_t *choice = json_array_get(choices, i);
    json_t *algorithm = json_object_get(choice, "algorithm");
    int different = 0;
    for (size_t s = 0; s < sizeof settings / sizeof *settings; s++)
      different += !json_equal(json_object_get(algorithm, settings[s]),
                               json_object_get(named, settings[s]));
    assert_true(different >= before);
    before = different;
    OK(try_call(choice));
    for (size_t j = 0; j < i; j++)
      assert_false(json_equal(
          algorithm, json_object_get(json_array_get(choices, j), "algorithm")));
  }
  OK(cuvil_library_choices(gpu, "cublaslt", call, 200, &again));
  assert_true(json_equal(choices, again));
  json_decref(again);
  json_decref(choices);
  /* Room for three parts and no more. */
  json_object_set_new(call, "workspace", json_integer(3072));
  OK(cuvil_library_choices(gpu, "cublaslt", call, 200, &choices));
  assert_int_equal(json_array_size(choices), 3 * 2 * 3);
  json_decref(choices);
  json_decref(call);
}

static void test_matmul_refusals(void **state) {
  (void)state;
  static const char *const wrong[][2] = {
      {"op", "\"matmuls\""},
      {"compute", "\"f16\""},
      {"m", "0"},
      {"a", "null"},
      {"a", "{\"dtype\":\"f32\",\"ld\":3}"},
      {"b", "{\"dtype\":\"i64\",\"ld\":4}"},
      {"beta", "1.0"},
      {"epilogue", "\"swish\""},
      {"batch", "2"},
      {"strides", "[1,2,3]"},
      {"workspace", "-1"},
      {"algorithm", "{\"id\":9}"},
      {"algorithm", "{\"id\":8,\"tile\":\"x\"}"}};
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    json_t *call = small_matmul();
    json_object_set_new(call, wrong[i][0],
                        json_loads(wrong[i][1], JSON_DECODE_ANY, NULL));
    if (try_call(call) == CUVIL_OK)
      fail_msg("%s = %s was taken", wrong[i][0], wrong[i][1]);
    json_decref(call);
  }
  struct cuvil_library_call *prepared;
  json_t *call = small_matmul();
  assert_int_equal(cuvil_library_prepare(gpu, "cufft", call, &prepared),
                   CU_ERR_UNSUPPORTED);
  assert_null(prepared);
  json_decref(call);
}

/* ---- cuDNN */

enum { CN = 2, CC = 4, CH = 5, CW = 6, CK = 6, CR = 3, CS = 2, CP = 3, CQ = 5 };

/* x has rows two elements longer than its channels. */
static json_t *convolution(bool epilogue, bool tf32) {
  return parse(
      "{\"op\":\"conv_fwd\",\"n\":2,\"c\":4,\"h\":5,\"w\":6,\"k\":6,\"r\":3,"
      "\"s\":2,\"stride\":[2,1],\"pad\":[1,0,2,1],\"dil\":[1,2],\"group\":2,"
      "\"dtype\":\"f32\",\"tf32\":%s,\"x_strides\":[180,36,6,1],"
      "\"bias\":%s,\"residual\":%s,\"activation\":\"%s\"}",
      tf32 ? "true" : "false", epilogue ? "true" : "false",
      epilogue ? "true" : "false", epilogue ? "relu" : "none");
}

static float conv_at(const float *x, const float *w, int n, int p, int q,
                     int k) {
  float sum = 0;
  for (int r = 0; r < CR; r++)
    for (int s = 0; s < CS; s++)
      for (int c = 0; c < CC / 2; c++) {
        int h = 2 * p - 1 + r, v = q + 2 * s;
        if (h < 0 || h >= CH || v >= CW) continue;
        int channel = k / (CK / 2) * (CC / 2) + c;
        sum += x[n * 180 + h * 36 + v * 6 + channel] *
               w[((k * CR + r) * CS + s) * (CC / 2) + c];
      }
  return sum;
}

static void run_convolution(const json_t *call, bool epilogue) {
  uint64_t at[6];
  const float *x = device(CN * 180, &at[0]);
  const float *w = device(CK * CR * CS * CC / 2, &at[1]);
  const float *y = device(CN * CP * CQ * CK, &at[2]);
  const float *bias = device(CK, &at[3]);
  const float *residual = device(CN * CP * CQ * CK, &at[4]);
  device(64, &at[5]);
  struct cuvil_library_call *prepared;
  OK(cuvil_library_prepare(gpu, "cudnn", call, &prepared));
  uint64_t plain[] = {at[0], at[1], at[2], at[5]};
  OK(cuvil_library_run(prepared, epilogue ? at : plain, epilogue ? 6 : 4,
                       stream));
  /* The same addresses again, then others: the residual's place for y. */
  OK(cuvil_library_run(prepared, epilogue ? at : plain, epilogue ? 6 : 4,
                       stream));
  for (int n = 0; n < CN; n++)
    for (int p = 0; p < CP; p++)
      for (int q = 0; q < CQ; q++)
        for (int k = 0; k < CK; k++) {
          int index = ((n * CP + p) * CQ + q) * CK + k;
          float sum = conv_at(x, w, n, p, q, k);
          if (epilogue) sum += bias[k] + residual[index];
          if (epilogue && sum < 0) sum = 0;
          assert_true(fabsf(sum - y[index]) < 1e-3f);
        }
  if (!epilogue) {
    plain[2] = at[4];
    OK(cuvil_library_run(prepared, plain, 4, stream));
    assert_memory_equal(residual, y, sizeof(float) * CN * CP * CQ * CK);
  }
  cuvil_library_call_destroy(prepared);
  for (int i = 0; i < 6; i++)
    cuvil_gpu_free(gpu, at[i]);
}

static void test_convolution(void **state) {
  (void)state;
  for (int i = 0; i < 2; i++) {
    json_t *call = convolution(i, false);
    run_convolution(call, i);
    json_decref(call);
  }
}

/* ---- attention: b 2, 4 heads on 2, 3 queries, 5 keys, 8 and 6 elements; q, k
 * and v are slices of one projection of 4 * 8 + 2 * 8 + 2 * 6 = 60. */
enum {
  AB = 2,
  AHQ = 4,
  AHKV = 2,
  ASQ = 3,
  ASKV = 5,
  AD = 8,
  ADV = 6,
  AROW = 60
};

static float attention_at(const float *q, const float *k, const float *v,
                          const float *mask, bool causal, const int *to) {
  float score[ASKV], top = -INFINITY, sum = 0, out = 0;
  int b = to[0], h = to[1], i = to[2], shared = h / (AHQ / AHKV);
  for (int j = 0; j < ASKV; j++) {
    score[j] = 0;
    for (int d = 0; d < AD; d++)
      score[j] += q[(b * ASQ + i) * AROW + h * AD + d] *
                  k[(b * ASKV + j) * AROW + shared * AD + d];
    score[j] *= 0.25f;
    if (mask) score[j] += mask[b * ASKV + j];
    if (causal && j > i + ASKV - ASQ) score[j] = -INFINITY;
    top = fmaxf(top, score[j]);
  }
  for (int j = 0; j < ASKV; j++) {
    float weight = expf(score[j] - top);
    sum += weight;
    out += weight * v[(b * ASKV + j) * AROW + shared * ADV + to[3]];
  }
  return out / sum;
}

static void run_attention(bool masked, bool causal) {
  uint64_t at[6];
  json_t *call = parse(
      "{\"op\":\"sdpa_fwd\",\"b\":2,\"hq\":4,\"hkv\":2,\"sq\":3,\"skv\":5,"
      "\"d\":8,\"dv\":6,\"dtype\":\"f16\",\"scale\":0.25,\"causal\":%s,"
      "\"q_strides\":[180,8,60,1],\"k_strides\":[300,8,60,1],"
      "\"v_strides\":[300,6,60,1],\"o_strides\":[72,6,24,1]%s}",
      causal ? "true" : "false",
      masked ? ",\"mask\":{\"dtype\":\"f16\",\"dims\":[2,1,1,5],"
               "\"strides\":[5,5,5,1]}"
             : "");
  const float *q = device(AB * ASQ * AROW, &at[0]);
  const float *k = device(AB * ASKV * AROW, &at[1]);
  const float *v = device(AB * ASKV * AROW, &at[2]);
  const float *o = device(AB * ASQ * AHQ * ADV, &at[3]);
  const float *mask = device(AB * ASKV, &at[4]);
  device(64, &at[5]);
  struct cuvil_library_call *prepared;
  OK(cuvil_library_prepare(gpu, "cudnn", call, &prepared));
  uint64_t plain[] = {at[0], at[1], at[2], at[3], at[5]};
  OK(cuvil_library_run(prepared, masked ? at : plain, masked ? 6 : 5, stream));
  int to[4];
  for (to[0] = 0; to[0] < AB; to[0]++)
    for (to[1] = 0; to[1] < AHQ; to[1]++)
      for (to[2] = 0; to[2] < ASQ; to[2]++)
        for (to[3] = 0; to[3] < ADV; to[3]++) {
          float got = o[((to[0] * ASQ + to[2]) * AHQ + to[1]) * ADV + to[3]];
          float want = attention_at(q, k, v, masked ? mask : NULL, causal, to);
          assert_true(fabsf(got - want) < 1e-4f);
        }
  cuvil_library_call_destroy(prepared);
  for (int i = 0; i < 6; i++)
    cuvil_gpu_free(gpu, at[i]);
  json_decref(call);
}

static void test_attention(void **state) {
  (void)state;
  for (int i = 0; i < 4; i++)
    run_attention(i & 1, i & 2);
}

static void test_convolution_choices(void **state) {
  (void)state;
  json_t *call = convolution(true, true), *choices;
  OK(cuvil_library_choices(gpu, "cudnn", call, 8, &choices));
  /* Of the library's 3, 2, 0, 1: 3 cannot be built, 2 is not exact. */
  assert_int_equal(json_array_size(choices), 2);
  json_t *first = json_array_get(choices, 0);
  json_t *expected = json_loads("{\"id\":0,\"knobs\":[[2,5],[14,3]]}", 0, NULL);
  assert_true(json_equal(json_object_get(first, "engine"), expected));
  json_decref(expected);
  assert_int_equal(json_integer_value(json_object_get(first, "workspace")), 64);
  run_convolution(first, true);
  run_convolution(json_array_get(choices, 1), true);
  /* Less workspace than the engine needs, and a knob too few. */
  struct cuvil_library_call *prepared;
  json_object_set_new(first, "workspace", json_integer(63));
  assert_int_equal(cuvil_library_prepare(gpu, "cudnn", first, &prepared),
                   CU_ERR_LIBRARY);
  json_object_set_new(first, "workspace", json_integer(64));
  json_array_remove(json_object_get(json_object_get(first, "engine"), "knobs"),
                    0);
  assert_int_equal(cuvil_library_prepare(gpu, "cudnn", first, &prepared),
                   CU_ERR_LIBRARY);
  assert_null(strchr(cuvil_last_error(), '\n'));
  json_decref(choices);
  /* fp32 that means fp32 takes no tensor cores. */
  json_object_set_new(call, "tf32", json_false());
  OK(cuvil_library_choices(gpu, "cudnn", call, 8, &choices));
  assert_int_equal(json_array_size(choices), 1);
  json_t *engine = json_object_get(json_array_get(choices, 0), "engine");
  assert_int_equal(json_integer_value(json_object_get(engine, "id")), 1);
  json_decref(choices);
  json_decref(call);
}

/* ---- a plan whose library is another */

/* The sample plan with its third step's kernels as the fallback of a product
 * of the arena's first 4x4 floats with themselves. */
static struct cuvil_plan *library_plan(void) {
  struct cuvil_plan *plan = fake_gpu_plan();
  struct cuvil_plan_step *step = &plan->steps[2];
  step->fallback = step->program;
  step->fallback_bindings = step->bindings;
  step->library_version = strdup("13.1.0");
  step->bindings = calloc(4, sizeof *step->bindings);
  OK(cuvil_program_create(&step->program));
  for (int i = 0; i < 3; i++) {
    uint64_t bytes = i == 2 ? 0 : 256;
    step->bindings[i] =
        (struct cuvil_binding){CUVIL_PLACE_ARENA, 0, i == 1 ? 512 : 0};
    OK(cuvil_program_add_buffer(
        step->program, i == 2 ? CUVIL_BUFFER_WORKSPACE : CUVIL_BUFFER_OPERAND,
        i, bytes, NULL));
  }
  struct cuvil_step *call;
  OK(cuvil_program_add_step(step->program, CUVIL_STEP_LIBRARY, &call));
  strcpy(call->library, "cublaslt");
  call->call = small_matmul();
  call->binding_count = 4;
  memcpy(call->bindings, (int[]){0, 0, 1, 2}, 4 * sizeof(int));
  return plan;
}

static float first_output(struct cuvil_session *session) {
  float x[64], y[64];
  for (int i = 0; i < 64; i++)
    x[i] = (float)i;
  OK(cuvil_gpu_upload(gpu, cuvil_session_input(session, 0), x, sizeof x));
  OK(cuvil_session_run(session, stream));
  OK(cuvil_gpu_download(gpu, y, cuvil_session_output(session, 0), sizeof y));
  return y[1];
}

static void test_fallback(void **state) {
  (void)state;
  struct cuvil_session *session;
  char path[256];
  const char *folder = getenv("CUVIL_TEST_TMP");
  struct cuvil_plan *made = library_plan(), *plan;
  snprintf(path, sizeof path, "%s/library_test.plan", folder ? folder : "/tmp");
  OK(cuvil_plan_write(made, path));
  cuvil_plan_destroy(made);
  OK(cuvil_plan_read(path, &plan));
  remove(path);
  /* The library it was chosen with: (0 1 2 3) . (1 5 9 13). */
  OK(cuvil_session_create(gpu, plan, &session));
  assert_int_equal(cuvil_session_fallbacks(session), 0);
  assert_true(first_output(session) == 0 * 1 + 1 * 5 + 2 * 9 + 3 * 13);
  cuvil_session_destroy(session);
  /* Another one: our own kernel, which copies. */
  setenv("CUVIL_FAKE_LT_VERSION", "130200", 1);
  OK(cuvil_session_create(gpu, plan, &session));
  assert_int_equal(cuvil_session_fallbacks(session), 1);
  assert_true(first_output(session) == 1);
  cuvil_session_destroy(session);
  unsetenv("CUVIL_FAKE_LT_VERSION");
  /* The same, but it refuses the call. */
  struct cuvil_plan_step *step = &plan->steps[2];
  json_object_set_new(step->program->steps[0].call, "algorithm",
                      json_pack("{s:i}", "id", 8));
  OK(cuvil_session_create(gpu, plan, &session));
  assert_int_equal(cuvil_session_fallbacks(session), 1);
  cuvil_session_destroy(session);
  /* And with nothing to fall back to. */
  cuvil_program_destroy(step->fallback);
  step->fallback = NULL;
  assert_int_equal(cuvil_session_create(gpu, plan, &session), CU_ERR_LIBRARY);
  assert_non_null(strstr(cuvil_last_error(), "kernels"));
  cuvil_plan_destroy(plan);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_versions),
      cmocka_unit_test(test_matmul),
      cmocka_unit_test(test_matmul_choices),
      cmocka_unit_test(test_matmul_enumerated),
      cmocka_unit_test(test_matmul_refusals),
      cmocka_unit_test(test_convolution),
      cmocka_unit_test(test_attention),
      cmocka_unit_test(test_convolution_choices),
      cmocka_unit_test(test_fallback),
  };
  return cmocka_run_group_tests(tests, set_up, tear_down);
}
