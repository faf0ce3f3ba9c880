/* compile_worker.c - a compile worker: program out of family and config, cubins
 * into the cache, what they cost back to the parent.
 *
 * It writes the program again rather than being sent it: the request stays
 * small, and the cubin cache is keyed by what was compiled, not by who asked.
 */
#include <string.h>

#include "base/clock.h"
#include "kernels/verify.h"
#include "tuner/pool.h"

enum cuvil_status cuvil_candidate_emit(const struct cuvil_problem *problem,
                                       const struct cuvil_arch *arch,
                                       const char *family_id,
                                       const char *config_text,
                                       struct cuvil_program **out) {
  const struct cuvil_family *family = cuvil_family_find(family_id);
  const struct cuvil_space *space = NULL;
  struct cuvil_config config = {{0}};
  *out = NULL;
  if (!family)
    return CUVIL_FAIL(CU_ERR_INTERNAL, "there is no family %s", family_id);
  CUVIL_TRY(cuvil_family_space(family, &space));
  CUVIL_TRY(cuvil_config_parse(space, config_text, &config));
  struct cuvil_query query = {problem, arch, space};
  return family->emit(&query, &config, out);
}

/* The compiler's log, cut to its first line with an error in it. */
static void error_line(const char *log, char *out, size_t size) {
  const char *at = log ? strstr(log, "error") : NULL;
  while (at && at > log && at[-1] != '\n')
    at--;
  if (!at) at = log ? log : "";
  size_t n = strcspn(at, "\n");
  if (n >= size) n = size - 1;
  memcpy(out, at, n);
  out[n] = '\0';
}

static json_t *failure(enum cuvil_status status,
                       const struct cuvil_compile_result *result) {
  char line[400];
  error_line(result->log, line, sizeof line);
  return json_pack("{s:b, s:s, s:o, s:f}", "ok", 0, "reason",
                   status == CU_ERR_LIBRARY ? "library" : "compile", "detail",
                   cuvil_message_text(*line ? line : cuvil_last_error()),
                   "seconds", result->seconds);
}

static json_t *success(const struct cuvil_program *program,
                       const struct cuvil_compile_result *result) {
  struct cuvil_buf all = {0};
  char binary[CUVIL_HASH_SIZE] = "";
  for (int i = 0; i < program->module_count; i++) {
    char one[CUVIL_HASH_SIZE];
    cuvil_hash_hex(program->modules[i].cubin, program->modules[i].cubin_size,
                   one);
    cuvil_buf_puts(&all, one);
  }
  if (cuvil_buf_status(&all) == CUVIL_OK)
    cuvil_hash_hex(cuvil_buf_text(&all), all.size, binary);
  cuvil_buf_free(&all);
  return json_pack("{s:b, s:s, s:i, s:i, s:i, s:f}", "ok", 1, "binary", binary,
                   "registers", result->registers, "spill_bytes",
                   result->spill_bytes, "shared_bytes", result->static_shared,
                   "seconds", result->seconds);
}

static json_t *compile(struct cuvil_program *program, const char *cubins) {
  struct cuvil_compile_result result = {0};
  double start = cuvil_now();
  enum cuvil_status status = cuvil_program_compile(program, cubins, &result);
  if (result.seconds <= 0) result.seconds = cuvil_now() - start;
  json_t *answer =
      status == CUVIL_OK ? success(program, &result) : failure(status, &result);
  cuvil_compile_result_free(&result);
  return answer;
}

/* What verifying a problem needs, so that the measuring worker finds it. */
static enum cuvil_status compile_verification(
    const struct cuvil_problem *problem,
    const struct cuvil_compile_worker *worker, json_t **out) {
  struct cuvil_program *program = NULL;
  CUVIL_TRY(cuvil_reference_program(problem, worker->arch, &program));
  *out = compile(program, worker->cubins);
  cuvil_program_destroy(program);
  for (int i = 0; i < problem->operand_count; i++) {
    if (problem->operands[i].role != CUVIL_ROLE_OUTPUT) continue;
    if (!json_is_true(json_object_get(*out, "ok"))) return CUVIL_OK;
    CUVIL_TRY(cuvil_compare_program(problem->operands[i].dtype,
                                    cuvil_operand_elements(problem, i),
                                    worker->arch, &program));
    json_decref(*out);
    *out = compile(program, worker->cubins);
    cuvil_program_destroy(program);
  }
  return CUVIL_OK;
}

static enum cuvil_status serve(const json_t *request,
                               const struct cuvil_compile_worker *worker,
                               json_t **out) {
  static struct cuvil_problem problem;
  const char *text = NULL, *family = NULL, *config = NULL;
  struct cuvil_program *program = NULL;
  CUVIL_TRY(cuvil_json_get_string(request, "problem", "request", &text));
  CUVIL_TRY(cuvil_problem_parse(text, &problem));
  if (!json_object_get(request, "family"))
    return compile_verification(&problem, worker, out);
  CUVIL_TRY(cuvil_json_get_string(request, "family", "request", &family));
  CUVIL_TRY(cuvil_json_get_string(request, "config", "request", &config));
  CUVIL_TRY(
      cuvil_candidate_emit(&problem, worker->arch, family, config, &program));
  *out = compile(program, worker->cubins);
  cuvil_program_destroy(program);
  return CUVIL_OK;
}

int cuvil_compile_worker_main(int fd, void *user) {
  const struct cuvil_compile_worker *worker = user;
  for (;;) {
    json_t *request = NULL, *answer = NULL;
    if (cuvil_message_receive(fd, &request) != CUVIL_OK) return 1;
    if (!request) return 0;
    if (serve(request, worker, &answer) != CUVIL_OK) {
      json_decref(answer);
      answer = json_pack("{s:b, s:s, s:o}", "ok", 0, "reason", "compile",
                         "detail", cuvil_message_text(cuvil_last_error()));
    }
    json_decref(request);
    if (!answer || cuvil_message_send(fd, answer) != CUVIL_OK) return 1;
    json_decref(answer);
  }
}
