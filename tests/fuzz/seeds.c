/* seeds.c - the inputs that everything starts from: every network of the
 * builder in small, a plan, a recording, a database, tensors.  (Problems and
 * spaces are the project's own: tests/support/problems.c, spaces/.) */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "db/db.h"
#include "graph/builder.h"
#include "graph/tensor_file.h"
#include "runtime/plan.h"
#include "tests/fuzz/fuzz.h"
#include "tests/support/db_sample.h"
#include "tests/support/fake_gpu.h"
#include "tests/support/synthetic.h"

static enum cuvil_status make_networks(const char *folder) {
  static const char *const names[] = {
      "bert", "gpt2", "vit", "llama", "mobilenet_v2", "efficientnet_b0"};
  for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); ++i)
    for (int spelling = 0; spelling < 2; ++spelling) {
      struct cuvil_network_options o;
      char path[512];
      if (!cuvil_network_options(names[i], &o)) return CU_ERR_INTERNAL;
      bool mobile = i > 3;
      if (mobile && spelling != (i == 4)) continue; /* large: one of each */
      o.layers = mobile ? 2 : 1;
      o.batch = 1;
      o.spelling = (enum cuvil_spelling)spelling;
      o.with_mask = i == 0;
      if (!mobile) {
        o.hidden = 8, o.heads = 2, o.kv_heads = 1, o.ffn = 16;
        o.vocab = 16, o.positions = 8, o.seq = 4;
        o.patch = 4;
      }
      o.half = mobile;
      o.image = mobile ? 32 : 8;
      o.classes = 3;
      snprintf(path, sizeof(path), "%s/%s_%s.onnx", folder, names[i],
               spelling ? "dynamo" : "torchscript");
      CUVIL_TRY(cuvil_builder_network(names[i], &o, path));
    }
  return CUVIL_OK;
}

static enum cuvil_status make_others(const char *folder) {
  static const char *const problems[] = {
      "gemm/1 m=64 n=64 k=64 a=f16[m,k] b=f16[n,k]:weight c=f16[m,n] acc=f32"};
  static const float numbers[6] = {1, 2, 3, 4, 5, 6};
  static const int64_t dims[2] = {2, 3};
  char path[512];
  struct cuvil_plan *plan = fake_gpu_plan();
  snprintf(path, sizeof(path), "%s/small.plan", folder);
  enum cuvil_status status = cuvil_plan_write(plan, path);
  cuvil_plan_destroy(plan);
  CUVIL_TRY(status);
  struct cuvil_recording *recording;
  synthetic_recording(problems, 1, 6, 1, &recording, NULL);
  snprintf(path, sizeof(path), "%s/small.t4.json", folder);
  status = cuvil_recording_write(recording, path);
  cuvil_recording_destroy(recording);
  CUVIL_TRY(status);
  snprintf(path, sizeof(path), "%s/small.npy", folder);
  CUVIL_TRY(cuvil_tensor_write_npy(path, CUVIL_F32, 2, dims, numbers));
  snprintf(path, sizeof(path), "%s/small.pb", folder);
  CUVIL_TRY(cuvil_tensor_write_pb(path, "x", CUVIL_F32, 2, dims, numbers));
  struct cuvil_db *db;
  snprintf(path, sizeof(path), "%s/small.db", folder);
  remove(path);
  CUVIL_TRY(cuvil_db_open(path, CUVIL_DB_WRITE, &db));
  struct cuvil_db_context context = sample_context(&sample_env, "measured");
  struct sample_problem problem = sample_gemm(64);
  sample_race(db, &context, &problem, "gemm_mma", "{\"block_m\":64}", 1e-5, 4,
              true, true);
  cuvil_db_close(db);
  return CUVIL_OK;
}

int fuzz_make_seeds(const char *folder) {
  if (make_networks(folder) != CUVIL_OK || make_others(folder) != CUVIL_OK) {
    fprintf(stderr, "fuzz: %s\n", cuvil_last_error());
    return 1;
  }
  return 0;
}
