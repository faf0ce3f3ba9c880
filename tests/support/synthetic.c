/* synthetic.c - see synthetic.h. */
#include "tests/support/synthetic.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"

enum { BLOCKS = 35, PILOTS = 3 };

static void must(enum cuvil_status status) {
  if (status == CUVIL_OK) return;
  fprintf(stderr, "synthetic recording: %s\n", cuvil_last_error());
  abort();
}

static void add_record(struct cuvil_recording *recording, int problem,
                       const struct cuvil_candidate *c, int rank,
                       struct cuvil_rng *rng) {
  struct cuvil_record record = {.problem = problem,
                                .family = strdup(c->family->id),
                                .config = strdup(c->text),
                                .version = c->version,
                                .choice = -1,
                                .worst_ratio = 0.25};
  record.compiled.state = CUVIL_COMPILE_DONE;
  record.compiled.registers = 64;
  record.compiled.seconds = 0.5;
  cuvil_hash_hex(c->text, strlen(c->text), record.compiled.hash);
  memcpy(record.compiled.binary, record.compiled.hash, CUVIL_HASH_SIZE);
  record.outcome.ok = true;
  if (rank % 7 == 6 && !c->is_default)
    cuvil_outcome_fail(&record.outcome, "wrong", "synthetic");
  record.rounds = calloc(BLOCKS, sizeof(int));
  record.seconds = calloc(BLOCKS, sizeof(double));
  for (int i = 0; i < BLOCKS && record.outcome.ok; i++) {
    record.rounds[i] = i - PILOTS;
    record.seconds[i] = 10e-6 * (1 + 0.04 * rank) *
                        (1 + 0.005 * (cuvil_rng_uniform(rng) - 0.5));
    record.block_count++;
  }
  must(cuvil_recording_push(recording, &record));
}

static void add_problem(struct cuvil_recording *recording, const char *text,
                        int count, struct cuvil_rng *rng, char **out_winner) {
  const struct cuvil_walk_options walk = {
      .heuristics = true, .limit = 512, .seed = rng->state};
  const struct cuvil_strategy strategy = {&cuvil_strategy_ordered, {0.25}};
  struct cuvil_problem problem;
  struct cuvil_candidates list;
  int index = -1;
  must(cuvil_problem_parse(text, &problem));
  must(cuvil_candidates_walk(&problem, &recording->arch, &walk, &list));
  must(cuvil_candidates_choose(&list, &problem, &recording->arch, &strategy,
                               count, rng->state));
  must(cuvil_recording_add_problem(recording, text, "warm", list.count,
                                   list.count, &index));
  int *ranks = calloc((size_t)list.count + 1, sizeof *ranks);
  for (int i = 0; i < list.count; i++) {
    int j = (int)cuvil_rng_below(rng, (uint64_t)i + 1);
    ranks[i] = ranks[j];
    ranks[j] = i;
  }
  for (int i = 0; i < list.count; i++) {
    if (ranks[i] == 0 && out_winner) *out_winner = strdup(list.items[i].text);
    add_record(recording, index, &list.items[i], ranks[i], rng);
  }
  free(ranks);
  cuvil_candidates_free(&list);
}

void synthetic_recording(const char *const *problems, int problem_count,
                         int count, uint64_t seed, struct cuvil_recording **out,
                         char **out_winners) {
  struct cuvil_env env = {.gpu = "synthetic",
                          .arch = "sm_90",
                          .sms = 132,
                          .memory_bytes = 80000000000,
                          .l2_bytes = 50 << 20,
                          .driver = "1.0",
                          .cuda = "13.0",
                          .nvrtc = "13.0"};
  struct cuvil_rng rng = {seed};
  must(cuvil_recording_create(cuvil_arch_find("sm_90"), &env, (int64_t)seed,
                              out));
  for (int i = 0; i < problem_count; i++)
    add_problem(*out, problems[i], count, &rng,
                out_winners ? &out_winners[i] : NULL);
}
