/* space_test.c - spaces: the loader names what is wrong, points and texts go
 * both ways, rules follow the architecture; the expression evaluator against
 * what Python says. */
#include "spaces/space.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* ---- expressions */

static bool lookup(void *user, const char *name, double *out) {
  (void)user;
  static const struct cuvil_variable names[] = {
      {"a", 7},    {"b", -3},  {"c", 16},        {"d", 0},
      {"m", 1024}, {"k", 768}, {"arch.sms", 132}};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    if (strcmp(names[i].name, name) != 0) continue;
    *out = names[i].value;
    return true;
  }
  return false;
}

/* Results are Python 3.11's for a=7 b=-3 c=16 d=0 m=1024 k=768.0; the second
 * half was drawn at random from the grammar. */
static const struct {
  const char *text;
  double value;
} python[] = {
    {"7 // 2", 3.0},
    {"-7 // 2", -4.0},
    {"7 // -2", -4.0},
    {"-7 // -2", 3.0},
    {"7 % 3", 1.0},
    {"-7 % 3", 2.0},
    {"7 % -3", -2.0},
    {"-7 % -3", -1.0},
    {"7.5 % 2", 1.5},
    {"-7.5 // 2", -4.0},
    {"2 ** 10", 1024.0},
    {"-2 ** 2", -4.0},
    {"2 ** -1", 0.5},
    {"2 ** 3 ** 2", 512.0},
    {"(-2) ** 3", -8.0},
    {"1 < 2 < 3", 1.0},
    {"1 < 3 < 2", 0.0},
    {"3 > 2 > 1 > 0", 1.0},
    {"1 == 1 != 2", 1.0},
    {"3 and 5", 5.0},
    {"0 and 5", 0.0},
    {"0 or 7", 7.0},
    {"3 or 7", 3.0},
    {"not 0", 1.0},
    {"not 3", 0.0},
    {"not 1 == 2", 1.0},
    {"not not 4", 1.0},
    {"1 if 2 > 1 else 0", 1.0},
    {"1 if 0 else 2 if 0 else 3", 3.0},
    {"(1 if 0 else 2) + 1", 3.0},
    {"1 or 0 and 0", 1.0},
    {"1 and 0 or 5", 5.0},
    {"min(3, 1, 2)", 1.0},
    {"max(3, 1, 2)", 3.0},
    {"abs(-4)", 4.0},
    {"abs(b) + min(a, b, c) * max(a, b)", -18.0},
    {"- - 3", 3.0},
    {"+-+3", -3.0},
    {"-a ** 2", -49.0},
    {"a - -b", 4.0},
    {"10 - 3 - 2", 5.0},
    {"100 // 7 // 2", 7.0},
    {"100 / 8", 12.5},
    {"2 * 3 % 4", 2.0},
    {"2 + 3 * 4 - 6 / 2", 11.0},
    {"True + True", 2.0},
    {"False or d", 0.0},
    {"a < c and b < a", 1.0},
    {"a <= 7 <= c", 1.0},
    {"a == 7.0", 1.0},
    {"m % 128 == 0 and k % 32 == 0", 1.0},
    {"(m + 63) // 64 * 64", 1024.0},
    {"m * k // (c * c)", 3072.0},
    {"1e3 + .5", 1000.5},
    {"0.1 + 0.2", 0.30000000000000004},
    {"d != 0 and a / d > 1", 0.0},
    {"d == 0 or a / d > 1", 1.0},
    {"a if d else b", -3.0},
    {"max(a, b if a > c else c)", 16.0},
    {"2**40 // 3", 366503875925.0},
    {"-(2**40) // 3", -366503875926.0},
    {"9007199254740991 % 1000", 991.0},
    {"not a and b", 0.0},
    {"not (a and b)", 0.0},
    {"a and not b", 0.0},
    {"3 - 2 < 2 == 1", 0.0},
    {"-abs(-a)", -7.0},
    {"not d // 3 + a >= d // abs(10) // 10 + c", 1.0},
    {"3 ** -1 % c == m", 0.0},
    {"c + 5 - m or c", -1003.0},
    {"1 < d / m != 5", 0.0},
    {"2 ** 0 * min(3 ** 0, c + 1 * 0 - 3, ((2.5)))", 1.0},
    {"(c + 1 % b ** -1)", 15.666666666666666},
    {"max(b, 10, 10) * 5 and 10 * m or m / k and 0", 10240.0},
    {"(not m)", 0.0},
    {"(m / k or c / 2) * 3 ** 3", 36.0},
    {"max(5 / 1 - 0 > 5, abs(3 / m), c % 2 and 5 - 5)", 0.0029296875},
    {"3 ** 3", 27.0},
    {"k + k != b ** 2", 1.0},
    {"a ** 2", 49.0},
    {"(k <= 1 // max(2, c, c))", 0.0},
    {"(2 <= m + max(a, 2, 3))", 1.0},
    {"(2 * c) / a ** 0", 32.0},
    {"not 2 != 2 or 2.5 and m != min(a / 10, m / 10, (m))", 1.0},
    {"k if 3 else c or 10 < b / min(5, a, k) / b // 2.5", 768.0},
    {"max(3, c, 10) - 2 if 2.5 else 1 - k + 0 / b % 0", 14.0},
    {"(0 if 1 else k) // (5 - b)", 0.0},
    {"0 or 2.5 == c or k", 768.0},
    {"(c and a)", 7.0},
    {"abs(10 // b or d / a)", 4.0},
    {"(not c - 3)", 0.0},
    {"(10 or 0)", 10.0},
    {"(2.5 - 10) * b if 1 else 10 if 10 % a else 5 if 10 else c", 22.5},
    {"min(2.5, a, 2.5) // 10 // 3", 0.0},
    {"2 / k * 3 / 3 + c * 1 * abs(0)", 0.0026041666666666665},
    {"k - k * 0 % c", 768.0},
    {"2 ** 2", 4.0},
    {"max(a + 0 and (k), m - m % (10), not d / a)", 1020.0},
    {"max(2 ** 3, b * 0 % 2.5 if 1 else m, 2 ** -1)", 8.0},
    {"k <= 1 + m % 3 % k % b >= max(2.5, b, a)", 0.0},
    {"(2 / 1 - 0 if 10 else 2) + k - k and 2 >= k - abs(0) and b - d", 0.0},
    {"(2.5 and d) // abs((a))", 0.0},
    {"a ** 3", 343.0},
    {"(2 ** 0)", 1.0},
    {"max(not k, m // 5, 10 and 0) + b % 1 + d * 5", 204.0},
    {"b ** 0 - (1)", 0.0},
    {"min(10, c, k) + 3 // 1 % 3 ** 0 + (b)", 7.0},
    {"max((a), 10 % 1, 5 if 5 else 0) >= 1 / 1 != abs(1)", 0.0},
    {"3 ** -1", 0.3333333333333333},
    {"min(k, d, 1) // c // k * 10 <= 10 // 5 // a", 1.0},
    {"max((b and 2.5), not 5 * 10, 3 // c >= 10 * b)", 2.5},
    {"5 // m // 10 > 5", 0.0},
    {"m or 5 <= max(b, m, 0) * 3 and d < 0 // 5", 1024.0},
    {"3 ** 2 if d and 3 else b - d // m - 2.5 // 10 + 1", -2.0},
    {"(1) + 3 - 2.5 / 10 and d if abs(10) else max(2.5, d, d)", 0.0},
    {"(k) and (k)", 768.0},
    {"a ** 0", 1.0},
    {"max(3 // c if 3 // a else m + 3, (d) + 0 or b, c * k + 5 + 3)", 12296.0},
    {"-b and 2", 2.0},
    {"0 < 5 % m + 0 * 1 + c * 1 < k - 2 * a / 2 ** 3 * (3) % 3 + 3", 1.0},
    {"(b - b) / b / b / k == m", 0.0},
    {"1 * k == 10 > m", 0.0},
    {"10 * 1 * max(c, d, 2) % b % a != 3 + d", 1.0},
    {"max(b, 5, k) * 0 and a and abs(max(2, 10, m))", 0.0},
    {"((c))", 16.0},
    {"b ** 0", 1.0},
    {"a ** 2 // 3 ** 3", 1.0},
    {"min(2, 5, b) % (2) - k // a * c - k", -2511.0},
    {"-m + 5 % (b)", -1025.0},
    {"b if 2 else m and (d) * 1 / 1 // m % 2.5", -3.0},
    {"-(2.5) / 3 * m + 2 ** 0 // 2 + m", 170.66666666666663},
    {"(b % 1 // 5 // k % 2 * d - 2 if m else b)", -2.0},
    {"m >= 1 if 2 + 5 else d // 3 % 5 + 10 % d // 5", 1.0},
    {"a ** 3", 343.0},
    {"3 ** -1 - 10 * 2 * a // k - (2 ** -1) - (2) >= d // 2", 0.0},
    {"abs(10 >= 0 <= 10 - 3)", 1.0},
    {"2.5 == 10 and max(1, 5, 5)", 0.0},
    {"10 - 2.5 or d % 1", 7.5},
    {"2 ** -1", 0.5},
    {"((k) * -b)", 2304.0},
    {"(b) and 2 if 1 else 10", 2.0},
    {"d + 5 >= a / 1 % k if c else 0 % d // 5", 0.0},
    {"m // 2 // 3 + 5 * min(10, 0, b) / k + b", 166.98046875},
    {"-k and b ** 0", 1.0},
    {"abs(5 % 2 <= a ** 2 < k % m - m - m)", 0.0},
    {"2 ** 3", 8.0},
    {"c > 5 % 2.5 if 0 else 2.5", 2.5},
    {"1 % c * b or c / 5 / 0 % b > 3", -3.0},
    {"((d)) + max(k, c, d) / a * c", 1755.4285714285713},
    {"2.5 - b / a ** 3", 2.508746355685131},
    {"(min(10, 2.5, 2))", 2.0},
    {"abs((b)) > 2 ** 3 + 5 * 1", 0.0},
    {"a ** 0", 1.0},
    {"k or k / a ** 3 / 5 // 0 * a if k else k", 768.0},
    {"a ** 0 - d - 0 * abs(c)", 1.0},
    {"max(1, 5, a) and 10 % k and 2.5 + 2.5 if (k) else max(1, a, c)", 5.0},
    {"abs(a - 0 if a + k else 1 != 3)", 7.0},
    {"(a * 2.5 + 1 % k)", 18.5},
    {"not min(m, c, 10)", 0.0},
    {"(abs(0) - a ** 3 or (c + 5))", -343.0},
    {"a ** 0", 1.0},
    {"3 - k + b / a", -765.4285714285714},
    {"1 % 3 * 3 / a if 2.5 - 1 * abs(k) else (10) * 1 - 0",
     0.42857142857142855},
    {"((0) % m / m)", 0.0},
    {"min(-abs(10), (a) * 0 % 2, (2.5) % a ** 0)", -10.0},
    {"2 / 2 == c * 2 / -max(d, b, c)", 0.0},
    {"(a > 10 or (k))", 768.0},
    {"abs(1 % 3) != b ** 0", 0.0},
    {"2 ** 0", 1.0},
    {"d // 2.5 or 3 * k", 2304.0},
    {"a ** -1", 0.14285714285714285},
    {"abs(b ** 3 and -a)", 7.0},
    {"a * c + 10 - 2.5", 119.5},
    {"min(2 * 10, 2.5 if 2 else 3, 10 % a) % 2 ** 3 * abs(10)", 25.0},
    {"(0 - 0 + a * b)", -21.0},
    {"2 ** 0 % abs(b < 5)", 0.0},
    {"min(2.5 - d, a - k, 0 and 2.5) * d and m + 3 ** 0", -0.0},
    {"k > c // abs(5) * (c) % 5 and 2", 2.0},
    {"-2 or 1 * k - d or 2 * a", -2.0},
    {"(10 < b)", 0.0},
    {"abs(m) + 5 + 2", 1031.0},
    {"-max(1, 3, k) - (m if 3 else m)", -1792.0},
    {"a > 10 or abs(0) or k // 3 <= max(2.5, 0, 3)", 0.0},
    {"b or 10 + c + k", -3.0},
    {"-(2 ** -1 / max(2.5, 10, 1))", -0.05},
    {"b ** 0", 1.0},
};

static void test_python(void **state) {
  (void)state;
  for (size_t i = 0; i < sizeof python / sizeof *python; i++) {
    struct cuvil_expression *expression;
    double value;
    if (cuvil_expression_parse(python[i].text, &expression) != CUVIL_OK ||
        cuvil_expression_evaluate(expression, lookup, NULL, &value) != CUVIL_OK)
      fail_msg("%s", cuvil_last_error());
    if (value != python[i].value)
      fail_msg("%s is %.17g, not %.17g", python[i].text, python[i].value,
               value);
    cuvil_expression_destroy(expression);
  }
}

static const char *const not_expressions[][2] = {
    {"", "column 1: expected a value, found the end"},
    {"1 +", "column 4: expected a value, found the end"},
    {"1 2", "column 3: expected an operator or the end"},
    {"(1", "column 3: expected ')'"},
    {"min()", "column 5: expected a value"},
    {"min(1,", "column 7: expected a value"},
    {"abs(1, 2)", "abs takes one argument"},
    {"pow(1, 2)", "column 1: unknown function"},
    {"1 if 2", "expected 'else'"},
    {"and", "column 1: expected a value"},
    {"3x", "a number ends in a letter"},
    {"a = 3", "column 3: expected an operator"},
    {"a $ 3", "column 3"},
    {"1 << 2", "column 4: expected a value"},
    {"123456789012345678901", "too many digits"},
    {"1e99", "power of ten"},
};

static void test_not_expressions(void **state) {
  (void)state;
  struct cuvil_expression *expression;
  for (size_t i = 0; i < sizeof not_expressions / sizeof *not_expressions;
       i++) {
    assert_int_equal(cuvil_expression_parse(not_expressions[i][0], &expression),
                     CU_ERR_PARSE);
    assert_null(expression);
    if (!strstr(cuvil_last_error(), not_expressions[i][1]))
      fail_msg("%s, not %s", cuvil_last_error(), not_expressions[i][1]);
  }
  /* Depth and length are bounded: no text can use up the stack. */
  char *text = malloc(100001);
  static const char *const units[] = {"(",   "-",  "not ", "1+",
                                      "2**", "1<", "min(", "1 if 1 else "};
  for (size_t i = 0; i < sizeof units / sizeof *units; i++) {
    size_t size = strlen(units[i]), at = 0;
    for (; at + size < 100000; at += size)
      memcpy(text + at, units[i], size);
    text[at] = 0;
    assert_int_equal(cuvil_expression_parse(text, &expression), CU_ERR_PARSE);
  }
  free(text);
}

static void test_not_values(void **state) {
  (void)state;
  static const char *const texts[][2] = {
      {"1 / d", "division by zero"},
      {"1 // d", "division by zero"},
      {"1 % d", "division by zero"},
      {"d ** -1", "division by zero"},
      {"b ** 0.5", "not a finite"},
      {"10 ** 1000", "not a finite"},
      {"1 + nothing", "unknown name 'nothing'"},
      {"arch.nothing", "unknown name 'arch.nothing'"}};
  for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
    struct cuvil_expression *expression;
    double value;
    assert_int_equal(cuvil_expression_parse(texts[i][0], &expression),
                     CUVIL_OK);
    assert_int_equal(
        cuvil_expression_evaluate(expression, lookup, NULL, &value),
        CU_ERR_INVALID_ARGUMENT);
    assert_non_null(strstr(cuvil_last_error(), texts[i][1]));
    cuvil_expression_destroy(expression);
  }
}

/* ---- spaces */

static const char gemm[] =
    "{\"space\": 1, \"family\": \"gemm_test\",\n"
    " \"parameters\": [\n"
    "  {\"name\": \"tile_m\", \"values\": [16, 32, 64], \"default\": 32,\n"
    "   \"about\": \"rows\"},\n"
    "  {\"name\": \"tile_n\", \"values\": [8, 16], \"default\": 8},\n"
    "  {\"name\": \"stages\", \"values\": [4, 3, 2, 1], \"default\": 2}],\n"
    " \"rules\": [\n"
    "  {\"name\": \"fits\", \"level\": \"hard\",\n"
    "   \"require\": \"shared_bytes <= arch.shared_per_block\",\n"
    "   \"reason\": \"a block cannot have more\"},\n"
    "  {\"name\": \"deep\", \"level\": \"heuristic\", \"arch\": \"sm_90\",\n"
    "   \"require\": \"stages >= 2\", \"reason\": \"latency\"},\n"
    "  {\"name\": \"square\", \"level\": \"heuristic\",\n"
    "   \"arch\": \"sm_80 sm_90\",\n"
    "   \"require\": \"tile_m <= 2 * tile_n or m > 100\",\n"
    "   \"reason\": \"shape\"}]}";

static struct cuvil_space *loaded(const char *json) {
  struct cuvil_space *space;
  if (cuvil_space_parse(json, strlen(json), "test.json", &space) != CUVIL_OK)
    fail_msg("%s", cuvil_last_error());
  return space;
}

static void test_space(void **state) {
  (void)state;
  struct cuvil_space *space = loaded(gemm);
  assert_string_equal(space->family, "gemm_test");
  assert_int_equal(space->param_count, 3);
  assert_string_equal(space->params[0].about, "rows");
  assert_false(space->open);
  assert_int_equal(cuvil_space_size(space), 24);
  struct cuvil_config config;
  cuvil_space_default(space, &config);
  assert_int_equal(cuvil_config_get(space, &config, "tile_m"), 32);
  cuvil_config_set(space, &config, "tile_m", 64);
  assert_int_equal(config.value[0], 64);
  assert_int_equal(cuvil_space_param(space, "stages"), 2);
  assert_int_equal(cuvil_space_param(space, "stage"), -1);
  /* First parameter slowest: rank 9 is 1, 0, 1. */
  cuvil_space_point(space, 9, &config);
  struct cuvil_buf text = {0};
  cuvil_config_print(space, &config, &text);
  assert_string_equal(cuvil_buf_text(&text), "tile_m=32,tile_n=8,stages=3");
  /* Every point's text leads back to it, and all differ. */
  char last[64] = "";
  for (uint64_t i = 0; i < 24; i++) {
    struct cuvil_config again;
    cuvil_space_point(space, i, &config);
    cuvil_buf_clear(&text);
    cuvil_config_print(space, &config, &text);
    assert_string_not_equal(last, cuvil_buf_text(&text));
    snprintf(last, sizeof last, "%s", cuvil_buf_text(&text));
    assert_int_equal(cuvil_config_parse(space, cuvil_buf_text(&text), &again),
                     CUVIL_OK);
    assert_memory_equal(&config, &again, sizeof config);
  }
  cuvil_buf_free(&text);
  cuvil_space_destroy(space);
}

static void test_config_mistakes(void **state) {
  (void)state;
  static const char *const texts[][2] = {
      {"", "'tile_m' is missing"},
      {"tile_m=16,tile_n=8", "'stages' is missing"},
      {"tile_m=17,tile_n=8,stages=1", "column 8: not a value"},
      {"tile_m=16,tile_n=8,stage=1", "column 20: expected a parameter"},
      {"tile_m=16,tile_m=16", "column 11: the parameter is given twice"},
      {"tile_m", "column 7: expected '='"},
      {"tile_m=x", "column 8: expected a whole number"},
      {"tile_m=16;tile_n=8", "column 10: expected ','"},
      {"tile_m=16,tile_n=8,stages=1,", "column 29: expected a parameter"},
      {"tile_m=99999999999999999999", "too large"}};
  struct cuvil_space *space = loaded(gemm);
  struct cuvil_config config;
  for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
    assert_int_equal(cuvil_config_parse(space, texts[i][0], &config),
                     CU_ERR_PARSE);
    if (!strstr(cuvil_last_error(), texts[i][1]))
      fail_msg("%s, not %s", cuvil_last_error(), texts[i][1]);
  }
  assert_int_equal(
      cuvil_config_parse(space, "stages=1,tile_n=16,tile_m=64", &config),
      CUVIL_OK);
  assert_int_equal(config.value[0], 64);
  cuvil_space_destroy(space);
}

static int check(const struct cuvil_space *space, const char *config_text,
                 const char *arch, double m, double shared, bool heuristics) {
  struct cuvil_config config;
  assert_int_equal(cuvil_config_parse(space, config_text, &config), CUVIL_OK);
  struct cuvil_variable variables[] = {{"m", m}, {"shared_bytes", shared}};
  return cuvil_space_check(space, cuvil_arch_find(arch), &config, variables, 2,
                           heuristics);
}

static void test_rules(void **state) {
  (void)state;
  struct cuvil_space *space = loaded(gemm);
  const char *good = "tile_m=16,tile_n=8,stages=2";
  const char *shallow = "tile_m=16,tile_n=8,stages=1";
  const char *tall = "tile_m=64,tile_n=8,stages=2";
  assert_int_equal(check(space, good, "sm_90", 1, 1000, true), -1);
  assert_int_equal(check(space, good, "sm_90", 1, 1e6, true), 0);
  assert_int_equal(check(space, good, "sm_90", 1, 1e6, false), 0);
  /* 200 000 bytes fit a block of sm_90 and not one of sm_80. */
  assert_int_equal(check(space, good, "sm_90", 1, 200000, true), -1);
  assert_int_equal(check(space, good, "sm_80", 1, 200000, true), 0);
  assert_int_equal(check(space, shallow, "sm_90", 1, 0, true), 1);
  assert_int_equal(check(space, shallow, "sm_80", 1, 0, true), -1);
  assert_int_equal(check(space, shallow, "sm_90", 1, 0, false), -1);
  assert_int_equal(check(space, tall, "sm_80", 1, 0, true), 2);
  assert_int_equal(check(space, tall, "sm_80", 101, 0, true), -1);
  struct cuvil_config config;
  cuvil_space_default(space, &config);
  assert_int_equal(cuvil_space_check(space, cuvil_arch_find("sm_80"), &config,
                                     NULL, 0, false),
                   -2);
  assert_non_null(strstr(cuvil_last_error(),
                         "rule 'fits': expression \"shared_bytes <= "
                         "arch.shared_per_block\": unknown name "
                         "'shared_bytes'"));
  cuvil_space_destroy(space);
}

static void test_arch_fields(void **state) {
  (void)state;
  struct cuvil_space *space = loaded(
      "{\"space\":1,\"family\":\"f\",\"parameters\":[],\"rules\":[{\"name\":"
      "\"all\",\"level\":\"hard\",\"reason\":\"r\",\"require\":\"arch.cc == 90 "
      "and arch.warp_size == 32 and arch.max_threads_per_block == 1024 and "
      "arch.shared_per_block > 200000 and arch.l2_bytes > 1e7 and "
      "arch.registers_per_sm == 65536 and arch.flops_f16 > "
      "arch.flops_f32\"}]}");
  struct cuvil_config config;
  assert_int_equal(cuvil_space_size(space), 1);
  assert_int_equal(cuvil_config_parse(space, "", &config), CUVIL_OK);
  assert_int_equal(cuvil_space_check(space, cuvil_arch_find("sm_90"), &config,
                                     NULL, 0, true),
                   -1);
  assert_int_equal(cuvil_space_check(space, cuvil_arch_find("sm_80"), &config,
                                     NULL, 0, true),
                   0);
  cuvil_space_destroy(space);
}

static void test_open(void **state) {
  (void)state;
  struct cuvil_space *space = loaded(
      "{\"space\":1,\"family\":\"library\",\"parameters\":[{\"name\":\"engine\""
      ",\"default\":-1},{\"name\":\"knob\",\"default\":0}],\"rules\":[]}");
  assert_true(space->open);
  assert_int_equal(cuvil_space_size(space), 0);
  struct cuvil_config config;
  assert_int_equal(
      cuvil_config_parse(space, "engine=-9223372036854775808,knob=17", &config),
      CUVIL_OK);
  assert_true(config.value[0] == INT64_MIN);
  struct cuvil_buf text = {0};
  cuvil_config_print(space, &config, &text);
  assert_string_equal(cuvil_buf_text(&text),
                      "engine=-9223372036854775808,knob=17");
  cuvil_buf_free(&text);
  cuvil_space_point(space, 5, &config);
  assert_true(config.value[0] == -1);
  cuvil_space_destroy(space);
}

#define SPACE(params, rules)                              \
  "{\"space\":1,\"family\":\"f\",\"parameters\":[" params \
  "],"                                                    \
  "\"rules\":[" rules "]}"
#define RULE(require)                                                          \
  "{\"name\":\"r\",\"level\":\"hard\",\"reason\":\"x\",\"require\":\"" require \
  "\"}"

static void test_space_mistakes(void **state) {
  (void)state;
  static const char *const texts[][2] = {
      {"{\n\"space\": 1,\n!", "test.json:3:"},
      {"[]", "a space must be an object"},
      {"{}", "\"space\" is missing"},
      {"{\"space\":2,\"family\":\"f\"}", "\"space\": 2 is unknown"},
      {"{\"space\":1,\"family\":\"f\",\"params\":[]}",
       "a space has the unknown key \"params\""},
      {"{\"space\":1,\"family\":\"f\"}", "\"parameters\" is missing"},
      {SPACE("3", ""), "a parameter must be an object"},
      {SPACE("{\"name\":\"a b\",\"default\":1}", ""),
       "parameter 'a b': this cannot be a name"},
      {SPACE("{\"name\":\"min\",\"default\":1}", ""), "cannot be a name"},
      {SPACE("{\"name\":\"a\",\"values\":[1]}", ""),
       "parameter 'a': \"default\" is missing"},
      {SPACE("{\"name\":\"a\",\"values\":[1,2],\"default\":3}", ""),
       "the default is not one of the values"},
      {SPACE("{\"name\":\"a\",\"values\":[],\"default\":3}", ""),
       "must be 1 to 32 whole numbers"},
      {SPACE("{\"name\":\"a\",\"values\":[1.5],\"default\":3}", ""),
       "must be whole numbers"},
      {SPACE("{\"name\":\"a\",\"values\":[1,1],\"default\":1}", ""),
       "a value is there twice"},
      {SPACE("{\"name\":\"a\",\"default\":1},{\"name\":\"a\",\"default\":1}",
             ""),
       "the name is there twice"},
      {SPACE("",
             "{\"name\":\"r\",\"level\":\"soft\",\"reason\":\"x\","
             "\"require\":\"1\"}"),
       "rule 'r': \"level\" must be"},
      {SPACE("", "{\"name\":\"r\",\"level\":\"hard\",\"require\":\"1\"}"),
       "rule 'r': \"reason\" is missing"},
      {SPACE("", "{\"name\":\"r\",\"level\":\"hard\",\"reason\":\"x\"}"),
       "rule 'r': \"require\" is missing"},
      {SPACE("",
             "{\"name\":\"r\",\"level\":\"hard\",\"reason\":\"x\","
             "\"arch\":\"sm_80 sm_1\",\"require\":\"1\"}"),
       "there is no architecture 'sm_1'"},
      {SPACE("",
             "{\"name\":\"r\",\"level\":\"hard\",\"reason\":\"x\","
             "\"arch\":\" \",\"require\":\"1\"}"),
       "names nothing"},
      {SPACE("", RULE("1 +")), "rule 'r': expression \"1 +\", column 4"},
      {SPACE("", RULE("arch.smz > 1")), "an architecture has no 'smz'"},
      {SPACE("", RULE("1") "," RULE("1")), "the name is there twice"},
  };
  struct cuvil_space *space;
  for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
    assert_int_equal(cuvil_space_parse(texts[i][0], strlen(texts[i][0]),
                                       "test.json", &space),
                     CU_ERR_PARSE);
    assert_null(space);
    if (!strstr(cuvil_last_error(), texts[i][1]) ||
        !strstr(cuvil_last_error(), "test.json"))
      fail_msg("%s, not %s", cuvil_last_error(), texts[i][1]);
  }
}

/* ---- walking: the same points as asking each, and all others counted */

struct visits {
  const struct cuvil_space *space;
  uint64_t count, most;
  bool seen[4096];
};

static enum cuvil_status visit(void *user, uint64_t rank,
                               const struct cuvil_config *config) {
  struct visits *v = user;
  struct cuvil_config expected;
  cuvil_space_point(v->space, rank, &expected);
  assert_memory_equal(config, &expected, sizeof expected);
  assert_false(v->seen[rank]);
  v->seen[rank] = true;
  v->count++;
  return v->count == v->most ? CU_ERR_INTERRUPTED : CUVIL_OK;
}

static const char walked[] = SPACE(
    "{\"name\":\"a\",\"values\":[1,2,3,4],\"default\":1},"
    "{\"name\":\"b\",\"values\":[8,16,32,64,128],\"default\":8},"
    "{\"name\":\"c\",\"values\":[0,1],\"default\":0},"
    "{\"name\":\"d\",\"values\":[1,2,3,5,7,11,13],\"default\":1},"
    "{\"name\":\"e\",\"values\":[3],\"default\":3}",
    "{\"name\":\"r0\",\"level\":\"hard\",\"reason\":\"x\","
    "\"require\":\"a * b <= 128 or c == 1\"},"
    "{\"name\":\"r1\",\"level\":\"heuristic\",\"reason\":\"x\","
    "\"require\":\"d != 7\"},"
    "{\"name\":\"r2\",\"level\":\"hard\",\"arch\":\"sm_80\","
    "\"reason\":\"x\",\"require\":\"c == 0\"},"
    "{\"name\":\"r3\",\"level\":\"hard\",\"reason\":\"x\","
    "\"require\":\"derived > 0 and a > 99\"},"
    "{\"name\":\"r4\",\"level\":\"heuristic\",\"reason\":\"x\","
    "\"require\":\"m % (a * d) == 0\"},"
    "{\"name\":\"r5\",\"level\":\"hard\",\"reason\":\"x\","
    "\"require\":\"m < 1000\"}");

static void test_walk(void **state) {
  (void)state;
  struct cuvil_space *space = loaded(walked);
  /* What derive would give is not known to the walk; the check is given a
   * value that keeps r3. */
  static const double ms[] = {12, 330, 0, 1000};
  static const char *const archs[] = {"sm_80", "sm_90"};
  for (int i = 0; i < 16; i++) {
    const struct cuvil_arch *arch = cuvil_arch_find(archs[i / 4 % 2]);
    bool heuristics = i >= 8;
    struct cuvil_variable known[] = {{"m", ms[i % 4]}};
    struct visits v = {.space = space};
    uint64_t removed[6] = {0}, total = 0;
    assert_int_equal(
        cuvil_space_walk(space, arch, known, 1, heuristics, removed, visit, &v),
        CUVIL_OK);
    for (int r = 0; r < 6; r++)
      total += removed[r];
    assert_int_equal(total + v.count, 280);
    assert_int_equal(removed[3], 0);
    uint64_t count = 0;
    for (uint64_t rank = 0; rank < 280; rank++) {
      struct cuvil_config config;
      cuvil_space_point(space, rank, &config);
      struct cuvil_variable all[] = {{"m", ms[i % 4]}, {"derived", 0}};
      int rule = cuvil_space_check(space, arch, &config, all, 2, heuristics);
      /* r3 fails every point that comes to it, and r4 and r5 come after. */
      if (rule == 3)
        rule =
            (heuristics &&
             (int64_t)ms[i % 4] % (config.value[0] * config.value[3]) != 0) ||
                    ms[i % 4] >= 1000
                ? 4
                : -1;
      assert_int_equal(v.seen[rank], rule == -1);
      count += rule == -1;
    }
    assert_int_equal(v.count, count);
  }
  /* A failing visit ends the walk. */
  struct visits v = {.space = space, .most = 5};
  struct cuvil_variable known[] = {{"m", 1}};
  assert_int_equal(cuvil_space_walk(space, cuvil_arch_find("sm_90"), known, 1,
                                    false, NULL, visit, &v),
                   CU_ERR_INTERRUPTED);
  assert_int_equal(v.count, 5);
  cuvil_space_destroy(space);
  space = loaded(SPACE("{\"name\":\"a\",\"default\":1}", ""));
  assert_int_equal(cuvil_space_walk(space, cuvil_arch_find("sm_90"), NULL, 0,
                                    false, NULL, visit, &v),
                   CU_ERR_INVALID_ARGUMENT);
  cuvil_space_destroy(space);
  space = loaded(SPACE("{\"name\":\"a\",\"values\":[0,1],\"default\":1}",
                       RULE("1 / a > 0")));
  v = (struct visits){.space = space};
  assert_int_equal(cuvil_space_walk(space, cuvil_arch_find("sm_90"), NULL, 0,
                                    false, NULL, visit, &v),
                   CU_ERR_INVALID_ARGUMENT);
  assert_non_null(strstr(cuvil_last_error(), "rule 'r': expression"));
  cuvil_space_destroy(space);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_python),
      cmocka_unit_test(test_not_expressions),
      cmocka_unit_test(test_not_values),
      cmocka_unit_test(test_space),
      cmocka_unit_test(test_config_mistakes),
      cmocka_unit_test(test_rules),
      cmocka_unit_test(test_arch_fields),
      cmocka_unit_test(test_open),
      cmocka_unit_test(test_space_mistakes),
      cmocka_unit_test(test_walk),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
