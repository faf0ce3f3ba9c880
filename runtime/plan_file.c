/* plan_file.c - plans to disk and back.
 *
 * Reading maps the file and believes nothing before it is checked, in an order
 * that gives the truest reason: magic, size, version, the header's own
 * checksum, the sections' places, the sections' checksums, and only then the
 * manifest's meaning.  Every refusal is CU_ERR_VERSION_MISMATCH with the file
 * named, because the remedy is always the same: compile the model again.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/plan_format.h"

static const char *const section_names[] = {"manifest", "cubins", "weights"};
/* Weights start on a page, cubins where an ELF file may. */
static const uint64_t section_alignment[] = {64, 64, 4096};

static uint64_t align_up(uint64_t value, uint64_t alignment) {
  return (value + alignment - 1) / alignment * alignment;
}

/* ---- writing */

/* The programs of all steps, fallbacks included, in order; `index` runs from
 * 0 until the answer is NULL. */
static struct cuvil_program *program_at(const struct cuvil_plan *plan,
                                        int index) {
  for (int i = 0; i < plan->step_count; i++) {
    if (index-- == 0) return plan->steps[i].program;
    if (plan->steps[i].fallback && index-- == 0) return plan->steps[i].fallback;
  }
  return NULL;
}

static enum cuvil_status collect_program(const struct cuvil_program *program,
                                         uint64_t *offset,
                                         struct plan_cubins *out) {
  for (int m = 0; m < program->module_count; m++) {
    const struct cuvil_module *module = &program->modules[m];
    if (!module->cubin)
      return CUVIL_FAIL(CU_ERR_INTERNAL,
                        "kernel %s of the plan is not compiled", module->hash);
    if (cuvil_plan_find_cubin(out, module->hash)) continue;
    struct plan_cubin *cubin = &out->list[out->count++];
    strcpy(cubin->hash, module->hash);
    cubin->bytes = module->cubin;
    cubin->size = module->cubin_size;
    cubin->offset = *offset;
    *offset = align_up(*offset + cubin->size, section_alignment[PLAN_CUBINS]);
  }
  return CUVIL_OK;
}

/* Every distinct cubin, in the order of first use. */
static enum cuvil_status collect_cubins(const struct cuvil_plan *plan,
                                        struct plan_cubins *out) {
  int most = 0;
  uint64_t offset = 0;
  struct cuvil_program *program;
  for (int i = 0; (program = program_at(plan, i)); i++)
    most += program->module_count;
  out->list = calloc((size_t)most + 1, sizeof *out->list);
  if (!out->list) return CUVIL_FAIL(CU_ERR_OUT_OF_MEMORY, "plan");
  for (int i = 0; (program = program_at(plan, i)); i++)
    CUVIL_TRY(collect_program(program, &offset, out));
  return CUVIL_OK;
}

static void pad_to(struct cuvil_buf *buf, uint64_t size) {
  static const char zeros[4096];
  while (buf->size < size && !buf->failed) {
    uint64_t gap = size - buf->size;
    cuvil_buf_add(buf, zeros, gap < sizeof zeros ? gap : sizeof zeros);
  }
}

/* Header, manifest and cubins with their gaps; weights follow from where they
 * are. */
static enum cuvil_status compose(const struct cuvil_plan *plan,
                                 const struct plan_cubins *cubins,
                                 const json_t *manifest,
                                 struct cuvil_buf *out) {
  struct plan_header header;
  memset(&header, 0, sizeof header);
  memcpy(header.magic, PLAN_MAGIC, sizeof header.magic);
  header.version = CUVIL_PLAN_VERSION;
  header.byte_order = PLAN_BYTE_ORDER;
  memcpy(header.arch, plan->arch, sizeof header.arch);
  cuvil_buf_add(out, &header, sizeof header);
  for (int i = 0; i < PLAN_SECTIONS; i++) {
    pad_to(out, align_up(out->size, section_alignment[i]));
    header.sections[i].offset = out->size;
    if (i == PLAN_MANIFEST) CUVIL_TRY(cuvil_json_print(manifest, out));
    for (int c = 0; i == PLAN_CUBINS && c < cubins->count; c++) {
      pad_to(out, header.sections[i].offset + cubins->list[c].offset);
      cuvil_buf_add(out, cubins->list[c].bytes, cubins->list[c].size);
    }
    header.sections[i].bytes = out->size - header.sections[i].offset;
  }
  CUVIL_TRY(cuvil_buf_status(out));
  header.sections[PLAN_WEIGHTS].bytes = plan->weights_bytes;
  header.sections[PLAN_WEIGHTS].hash =
      cuvil_hash64(plan->weights, plan->weights_bytes, 0);
  header.file_bytes = out->size + plan->weights_bytes;
  for (int i = 0; i < PLAN_WEIGHTS; i++)
    header.sections[i].hash = cuvil_hash64(
        out->data + header.sections[i].offset,
        header.sections[i + 1].offset - header.sections[i].offset, 0);
  header.hash = cuvil_hash64(&header, offsetof(struct plan_header, hash), 0);
  memcpy(out->data, &header, sizeof header);
  return CUVIL_OK;
}

enum cuvil_status cuvil_plan_write(const struct cuvil_plan *plan,
                                   const char *path) {
  struct plan_cubins cubins = {0};
  struct cuvil_buf head = {0};
  json_t *manifest = NULL;
  enum cuvil_status status = CUVIL_OK;
  CUVIL_TRY(cuvil_plan_check(plan, path));
  CUVIL_TRY_GOTO(collect_cubins(plan, &cubins));
  CUVIL_TRY_GOTO(cuvil_plan_manifest_write(plan, &cubins, &manifest));
  CUVIL_TRY_GOTO(compose(plan, &cubins, manifest, &head));
  /* Weights may be hundreds of megabytes: written from where they lie. */
  const struct cuvil_file_part parts[] = {{head.data, head.size},
                                          {plan->weights, plan->weights_bytes}};
  CUVIL_TRY_GOTO(cuvil_file_write_parts(path, parts, 2));
fail:
  json_decref(manifest);
  cuvil_buf_free(&head);
  free(cubins.list);
  return status;
}

/* ---- reading */

#define REFUSE(format, ...)                             \
  CUVIL_FAIL(CU_ERR_VERSION_MISMATCH,                   \
             "%s: " format "; compile the model again", \
             origin __VA_OPT__(, ) __VA_ARGS__)

static enum cuvil_status check_header(const char *bytes, uint64_t size,
                                      const char *origin,
                                      struct plan_header *out) {
  memset(out, 0, sizeof *out);
  memcpy(out, bytes, size < sizeof *out ? size : sizeof *out);
  if (memcmp(out->magic, PLAN_MAGIC, size < 8 ? size : 8) != 0 || size == 0)
    return REFUSE("this is not a Cuvil plan (bad magic)");
  if (size < sizeof *out)
    return REFUSE("the plan is truncated: %llu bytes",
                  (unsigned long long)size);
  if (out->version != CUVIL_PLAN_VERSION)
    return REFUSE("plan version %u, this Cuvil reads version %d", out->version,
                  CUVIL_PLAN_VERSION);
  if (out->hash != cuvil_hash64(out, offsetof(struct plan_header, hash), 0))
    return REFUSE("the plan's header is damaged (checksum)");
  if (out->byte_order != PLAN_BYTE_ORDER || out->reserved != 0 ||
      !memchr(out->arch, 0, sizeof out->arch))
    return REFUSE("the plan's header is not of this version");
  if (size < out->file_bytes)
    return REFUSE("the plan is truncated: %llu bytes of %llu",
                  (unsigned long long)size,
                  (unsigned long long)out->file_bytes);
  if (size > out->file_bytes)
    return REFUSE("the plan has %llu bytes after its end",
                  (unsigned long long)(size - out->file_bytes));
  return CUVIL_OK;
}

static enum cuvil_status check_sections(const char *bytes,
                                        const struct plan_header *header,
                                        const char *origin) {
  uint64_t at = sizeof *header;
  for (int i = 0; i < PLAN_SECTIONS; i++) {
    at = align_up(at, section_alignment[i]);
    if (header->sections[i].offset != at || at > header->file_bytes ||
        header->sections[i].bytes > header->file_bytes - at)
      return REFUSE("the plan's %s section is not where it must be",
                    section_names[i]);
    at += header->sections[i].bytes;
  }
  if (at != header->file_bytes)
    return REFUSE("the plan's sections do not fill it");
  for (int i = 0; i < PLAN_SECTIONS; i++) {
    uint64_t end = i + 1 < PLAN_SECTIONS ? header->sections[i + 1].offset
                                         : header->file_bytes;
    uint64_t start = header->sections[i].offset;
    if (cuvil_hash64(bytes + start, end - start, 0) != header->sections[i].hash)
      return REFUSE("the plan's %s section is damaged (checksum)",
                    section_names[i]);
  }
  return CUVIL_OK;
}

/* Each program gets its own copy of its cubins, as if it had compiled them. */
static enum cuvil_status attach_cubins(struct cuvil_plan *plan,
                                       const struct plan_cubins *cubins,
                                       const char *section, uint64_t size,
                                       const char *origin) {
  struct cuvil_program *program;
  for (int i = 0; (program = program_at(plan, i)); i++) {
    for (int m = 0; m < program->module_count; m++) {
      struct cuvil_module *module = &program->modules[m];
      const struct plan_cubin *cubin =
          cuvil_plan_find_cubin(cubins, module->hash);
      if (!cubin || cubin->offset > size || cubin->size > size - cubin->offset)
        return REFUSE("the plan does not hold the kernel %s", module->hash);
      module->cubin = malloc(cubin->size + 1);
      if (!module->cubin) return CUVIL_FAIL(CU_ERR_OUT_OF_MEMORY, "cubin");
      memcpy(module->cubin, section + cubin->offset, cubin->size);
      module->cubin_size = cubin->size;
    }
  }
  return CUVIL_OK;
}

static enum cuvil_status read_manifest(const char *bytes,
                                       const struct plan_header *header,
                                       const char *origin,
                                       struct cuvil_plan *plan) {
  struct plan_cubins cubins = {0};
  json_t *manifest = NULL;
  enum cuvil_status status = CUVIL_OK;
  CUVIL_TRY_GOTO(cuvil_json_parse(
      bytes + header->sections[PLAN_MANIFEST].offset,
      header->sections[PLAN_MANIFEST].bytes, origin, &manifest));
  CUVIL_TRY_GOTO(cuvil_plan_manifest_read(manifest, origin, plan, &cubins));
  CUVIL_TRY_GOTO(attach_cubins(plan, &cubins,
                               bytes + header->sections[PLAN_CUBINS].offset,
                               header->sections[PLAN_CUBINS].bytes, origin));
  CUVIL_TRY_GOTO(cuvil_plan_check(plan, origin));
  if (strcmp(plan->arch, header->arch) != 0 ||
      plan->weights_bytes != header->sections[PLAN_WEIGHTS].bytes)
    CUVIL_TRY_GOTO(REFUSE("the plan's header and manifest disagree"));
fail:
  json_decref(manifest);
  free(cubins.list);
  if (status == CU_ERR_PARSE || status == CU_ERR_INVALID_ARGUMENT)
    status = CUVIL_FAIL(CU_ERR_VERSION_MISMATCH,
                        "%s; the plan is not one of this version, compile "
                        "the model again",
                        cuvil_error_last()->message);
  return status;
}

static enum cuvil_status map_file(const char *path, struct cuvil_plan *plan) {
  struct stat info;
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return CUVIL_FAIL(CU_ERR_IO, "%s: %s", path, strerror(errno));
  enum cuvil_status status = CUVIL_OK;
  void *mapping = MAP_FAILED;
  if (fstat(fd, &info) != 0)
    status = CUVIL_FAIL(CU_ERR_IO, "%s: %s", path, strerror(errno));
  else if (!S_ISREG(info.st_mode))
    status = CUVIL_FAIL(CU_ERR_IO, "%s: not a regular file", path);
  else if (info.st_size == 0)
    status = CUVIL_FAIL(CU_ERR_VERSION_MISMATCH,
                        "%s: the file is empty; compile the model again", path);
  else
    mapping = mmap(NULL, (size_t)info.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
  if (status == CUVIL_OK && mapping == MAP_FAILED)
    status = CUVIL_FAIL(CU_ERR_IO, "%s: %s", path, strerror(errno));
  close(fd);
  if (status != CUVIL_OK) return status;
  plan->mapping = mapping;
  plan->mapping_bytes = (uint64_t)info.st_size;
  return CUVIL_OK;
}

enum cuvil_status cuvil_plan_read(const char *path, struct cuvil_plan **out) {
  struct plan_header header;
  enum cuvil_status status = CUVIL_OK;
  *out = NULL;
  struct cuvil_plan *plan = calloc(1, sizeof *plan);
  if (!plan) return CUVIL_FAIL(CU_ERR_OUT_OF_MEMORY, "plan");
  CUVIL_TRY_GOTO(map_file(path, plan));
  char *bytes = plan->mapping;
  CUVIL_TRY_GOTO(check_header(bytes, plan->mapping_bytes, path, &header));
  CUVIL_TRY_GOTO(check_sections(bytes, &header, path));
  CUVIL_TRY_GOTO(read_manifest(bytes, &header, path, plan));
  if (plan->weights_bytes > 0)
    plan->weights = bytes + header.sections[PLAN_WEIGHTS].offset;
  *out = plan;
  return CUVIL_OK;
fail:
  cuvil_plan_destroy(plan);
  return status;
}
