/* plan_format.h - internal to runtime/: a plan's bytes.
 *
 * header | manifest (JSON) | cubins | weights.  Sections follow each other;
 * the gap that aligns the next one belongs to the one before it and is under
 * its checksum, so that no byte of the file is outside of one.  Numbers are
 * little-endian.
 */
#ifndef CUVIL_RUNTIME_PLAN_FORMAT_H_
#define CUVIL_RUNTIME_PLAN_FORMAT_H_

#include "base/json.h"
#include "runtime/plan.h"

#define PLAN_MAGIC "CUVILPLN"
#define PLAN_BYTE_ORDER 0x01020304u

enum plan_section {
  PLAN_MANIFEST,
  PLAN_CUBINS,
  PLAN_WEIGHTS,
  PLAN_SECTIONS,
};

struct plan_header {
  char magic[8];
  uint32_t version;
  uint32_t byte_order;
  char arch[16];
  struct {
    uint64_t offset, bytes;
    uint64_t hash; /* XXH3 of all bytes up to the next section, seed 0 */
  } sections[PLAN_SECTIONS];
  uint64_t file_bytes;
  uint64_t reserved; /* 0 */
  uint64_t hash;     /* of the header before this field */
};
_Static_assert(sizeof(struct plan_header) == 128, "no padding inside");

/* A cubin that at least one module of the plan has. */
struct plan_cubin {
  char hash[CUVIL_HASH_SIZE];
  const void *bytes; /* borrowed */
  uint64_t offset, size;
};
struct plan_cubins {
  struct plan_cubin *list; /* owned */
  int count;
};
/* NULL when there is none of that hash. */
const struct plan_cubin *cuvil_plan_find_cubin(const struct plan_cubins *cubins,
                                               const char *hash);

/* plan_manifest.c */
CUVIL_MUST_USE enum cuvil_status cuvil_plan_manifest_write(
    const struct cuvil_plan *plan, const struct plan_cubins *cubins,
    json_t **out);
/* Fills `plan` (zeroed before; destroyed by the caller on failure) but for
 * weights and cubins, and lists the cubins, `bytes` still NULL. */
CUVIL_MUST_USE enum cuvil_status cuvil_plan_manifest_read(
    const json_t *json, const char *origin, struct cuvil_plan *plan,
    struct plan_cubins *cubins);

#endif /* CUVIL_RUNTIME_PLAN_FORMAT_H_ */
