/* arch.c - the table of architectures.
 *
 * Limits: CUDA C++ Programming Guide, "Technical Specifications per Compute
 * Capability"; shared memory: 1 KiB per block is taken by the system on both.
 * Where no GPU is at hand, counts are those of the reference products: A100
 * SXM4 80 GB for sm_80, H200 for sm_90.  Rates are levels reached in practice
 * (docs/notes), not data sheet peaks: they order candidates.
 */
#include "base/arch.h"

#include <string.h>

static const struct cuvil_arch table[] = {
    {.name = "sm_80",
     .nvrtc_name = "sm_80",
     .cc = 80,
     .sms = 108,
     .warp_size = 32,
     .max_threads_per_block = 1024,
     .max_threads_per_sm = 2048,
     .max_blocks_per_sm = 32,
     .max_registers_per_thread = 255,
     .registers_per_sm = 65536,
     .register_granularity = 256,
     .shared_per_sm = 164 * 1024,
     .shared_per_block = 163 * 1024,
     .shared_reserved = 1024,
     .shared_granularity = 128,
     .max_cluster = 1,
     .l2_bytes = 40ll << 20,
     .memory_bytes = 80ll << 30,
     .memory_bytes_per_second = 1.7e12,
     .flops_f16 = 2.6e14,
     .flops_tf32 = 1.3e14,
     .flops_f32 = 1.8e13},
    {.name = "sm_90",
     .nvrtc_name = "sm_90a",
     .cc = 90,
     .sms = 132,
     .warp_size = 32,
     .max_threads_per_block = 1024,
     .max_threads_per_sm = 2048,
     .max_blocks_per_sm = 32,
     .max_registers_per_thread = 255,
     .registers_per_sm = 65536,
     .register_granularity = 256,
     .shared_per_sm = 228 * 1024,
     .shared_per_block = 227 * 1024,
     .shared_reserved = 1024,
     .shared_granularity = 128,
     .max_cluster = 8,
     .l2_bytes = 60ll << 20,
     .memory_bytes = 141ll << 30,
     .memory_bytes_per_second = 4.3e12,
     .flops_f16 = 7.9e14,
     .flops_tf32 = 3.9e14,
     .flops_f32 = 5.5e13},
};

const struct cuvil_arch *cuvil_arch_find(const char *name) {
  for (size_t i = 0; i < sizeof table / sizeof table[0]; i++)
    if (strcmp(table[i].name, name) == 0) return &table[i];
  return NULL;
}

const struct cuvil_arch *cuvil_arch_by_cc(int cc) {
  for (size_t i = 0; i < sizeof table / sizeof table[0]; i++)
    if (table[i].cc == cc) return &table[i];
  return NULL;
}

/* 5120 bytes per cycle of the A100's 108 SMs (NVIDIA A100 architecture white
 * paper), which Hopper keeps per SM; clocks as they are under load. */
double cuvil_arch_l2_rate(const struct cuvil_arch *arch) {
  double clock = arch->cc >= 90 ? 1.7e9 : 1.41e9;
  return 5120.0 / 108 * arch->sms * clock;
}

const char *cuvil_arch_names(void) {
  return "sm_80, sm_90";
}

static int round_up(int value, int granularity) {
  return (value + granularity - 1) / granularity * granularity;
}

int cuvil_arch_blocks_per_sm(const struct cuvil_arch *arch, int threads,
                             int registers, int shared) {
  if (threads < 1 || threads > arch->max_threads_per_block) return 0;
  if (registers > arch->max_registers_per_thread) return 0;
  if (shared > arch->shared_per_block) return 0;
  int warps = (threads + arch->warp_size - 1) / arch->warp_size;
  int blocks = arch->max_blocks_per_sm;
  int by_threads = arch->max_threads_per_sm / (warps * arch->warp_size);
  if (by_threads < blocks) blocks = by_threads;
  if (registers > 0) {
    int per_warp =
        round_up(registers * arch->warp_size, arch->register_granularity);
    /* Registers are dealt out by the four quarters of an SM. */
    int warps_fit = arch->registers_per_sm / 4 / per_warp * 4;
    if (warps_fit / warps < blocks) blocks = warps_fit / warps;
  }
  int per_block =
      round_up(shared + arch->shared_reserved, arch->shared_granularity);
  if (arch->shared_per_sm / per_block < blocks)
    blocks = arch->shared_per_sm / per_block;
  return blocks;
}
