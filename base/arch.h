/* arch.h - what each GPU architecture allows, as a table.
 *
 * Limits are from the CUDA C++ Programming Guide, "Compute Capabilities"
 * (Technical Specifications per Compute Capability).  A device in hand is
 * described by the same structure, filled by gpu/ from the driver, so that
 * pruning is the same with and without a GPU.
 */
#ifndef CUVIL_BASE_ARCH_H_
#define CUVIL_BASE_ARCH_H_

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct cuvil_arch {
  char name[16];       /* "sm_90": what --arch and the database say */
  char nvrtc_name[16]; /* "sm_90a": what is passed to the compiler */
  int cc;              /* 80, 90 */
  int sms;             /* of the reference product where no GPU is */
  int warp_size;
  int max_threads_per_block;
  int max_threads_per_sm;
  int max_blocks_per_sm;
  int max_registers_per_thread;
  int registers_per_sm;     /* 32-bit */
  int register_granularity; /* per warp, in registers */
  int shared_per_sm;        /* bytes */
  int shared_per_block;     /* bytes a block may opt in to */
  int shared_reserved;      /* bytes the system takes per block */
  int shared_granularity;   /* bytes */
  int max_cluster;          /* portable cluster size; 1 where none */
  int64_t l2_bytes;
  int64_t memory_bytes;
  /* For ordering candidates and "of roof" only; never a verdict. */
  double memory_bytes_per_second;
  double flops_f16;  /* dense tensor core, fp32 accumulation; also bf16 */
  double flops_tf32; /* dense tensor core */
  double flops_f32;  /* without tensor cores */
};

/* "sm_80" or "sm_90"; NULL when unknown.  Static. */
const struct cuvil_arch *cuvil_arch_find(const char *name);
const struct cuvil_arch *cuvil_arch_by_cc(int cc);
/* What the L2 gives to all SMs together; bytes per second.  For "of roof". */
double cuvil_arch_l2_rate(const struct cuvil_arch *arch);
/* Names of all, separated by ", "; static. */
const char *cuvil_arch_names(void);

/* Blocks of one kernel that fit one SM at once; 0 when a block cannot run.
 * registers: per thread; shared: bytes per block, static and dynamic. */
int cuvil_arch_blocks_per_sm(const struct cuvil_arch *arch, int threads,
                             int registers, int shared);

#endif /* CUVIL_BASE_ARCH_H_ */
