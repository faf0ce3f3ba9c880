/* mma_index_test.c - the index arithmetic of the tensor-core kernels, the very
 * text that the GPU compiles, gone through case by case on the host.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/clock.h"
#include "kernels/common/mma.h"

typedef uint32_t u32;
typedef uint64_t u64;
#define DEVICE static inline
#include "kernels/common/mma_index.cuh"

static void test_swizzle_keeps_rows(void **state) {
  (void)state;
  for (u32 chunks = 2; chunks <= 32; chunks *= 2)
    for (u32 row = 0; row < 256; row++) {
      u64 seen = 0;
      for (u32 at = 0; at < chunks * 16; at += 2) {
        u32 offset = panel_offset(row, at, chunks * 16);
        assert_int_equal(offset / (chunks * 16), row);
        assert_int_equal(offset % 16, at % 16);
        if (at % 16 == 0) seen |= (u64)1 << (offset / 16 % chunks);
      }
      assert_true(seen == ((u64)1 << chunks) - 1);
    }
}

static void test_swizzle_has_no_conflicts(void **state) {
  (void)state;
  for (u32 chunks = 2; chunks <= 32; chunks *= 2)
    for (u32 row = 0; row < 256; row += 8)
      for (u32 chunk = 0; chunk < chunks; chunk++) {
        u32 banks = 0;
        for (u32 i = 0; i < 8; i++)
          banks |=
              1u << (panel_offset(row + i, chunk * 16, chunks * 16) / 16 % 8);
        assert_int_equal(banks, 255);
      }
}

/* What lane `lane` of ldmatrix.x4 must address so that register r of a lane
 * holds what mma wants: matrix r of A is rows 8 * (r % 2), chunk r / 2 (PTX
 * ISA, fragments of m16n8k16); of two B fragments side by side, columns
 * 8 * (r / 2), chunk r % 2. */
static u32 wanted(int is_a, int transposed, u32 lane, u32 first, u32 block,
                  u32 k /* first of the step */, u32 size, u32 row_bytes) {
  u32 r = lane / 8, i = lane % 8;
  u32 across = first + block * 16 + (is_a ? r % 2 : r / 2) * 8;
  u32 depth = k + (is_a ? r / 2 : r % 2) * (16 / size);
  return transposed ? panel_offset(depth + i, across * size, row_bytes)
                    : panel_offset(across + i, depth * size, row_bytes);
}

static void check_fragments(int is_a, int transposed, u32 tile, u32 warps,
                            u32 tile_k, u32 slices, u32 size) {
  int crossed = is_a ? transposed : !transposed;
  u32 row_bytes = (transposed ? tile : tile_k) * size;
  u32 steps = tile_k * size / 32 / slices;
  for (u32 warp = 0; warp < warps; warp++)
    for (u32 slice = 0; slice < slices; slice++)
      for (u32 lane = 0; lane < 32; lane++) {
        u32 first = warp * (tile / warps);
        u32 base = fragment_base(lane, crossed, transposed, row_bytes, first,
                                 slice, steps, size);
        u32 flip = fragment_flip(lane, crossed, transposed, row_bytes, first,
                                 slice, steps, size);
        for (u32 block = 0; block < tile / warps / 16; block++)
          for (u32 step = 0; step < steps; step++)
            assert_int_equal(
                fragment_at(base, flip, transposed, row_bytes, block, step,
                            size),
                wanted(is_a, transposed, lane, first, block,
                       (slice * steps + step) * (32 / size), size, row_bytes));
      }
}

static void test_fragments(void **state) {
  (void)state;
  for (int is_a = 0; is_a < 2; is_a++)
    for (u32 tile = 16; tile <= 256; tile *= 2)
      for (u32 warps = 1; warps <= 4 && warps * 16 <= tile; warps *= 2)
        for (u32 tile_k = 32; tile_k <= 128; tile_k *= 2)
          for (u32 slices = 1; slices <= 4 && slices * 16 <= tile_k;
               slices *= 2) {
            check_fragments(is_a, 0, tile, warps, tile_k, slices, 2);
            check_fragments(is_a, 1, tile, warps, tile_k, slices, 2);
            check_fragments(is_a, 0, tile, warps, tile_k, slices, 4);
          }
}

static void check_divisor(u32 divisor) {
  u32 magic, shift;
  cuvil_mma_divider(divisor, &magic, &shift);
  struct cuvil_rng rng = {divisor};
  for (int i = 0; i < 200; i++) {
    u32 n = (u32)(cuvil_rng_next(&rng) & 0x7fffffff);
    u32 near = n / divisor * divisor;
    assert_int_equal(divide(n, magic, shift), n / divisor);
    assert_int_equal(divide(near, magic, shift), near / divisor);
    if (near) {
      assert_int_equal(divide(near - 1, magic, shift), (near - 1) / divisor);
    }
  }
  assert_int_equal(divide(0x7fffffff, magic, shift), 0x7fffffff / divisor);
  assert_int_equal(divide(0, magic, shift), 0);
}

static void test_divide(void **state) {
  (void)state;
  for (u32 divisor = 1; divisor <= 2000; divisor++)
    check_divisor(divisor);
  struct cuvil_rng rng = {7};
  for (int i = 0; i < 2000; i++)
    check_divisor((u32)(cuvil_rng_next(&rng) & 0x7fffffff) | 1);
  check_divisor(0x7fffffff);
  check_divisor(1u << 30);
}

static void test_tiles_each_once(void **state) {
  (void)state;
  for (u32 order = 0; order <= 8; order++)
    for (u32 tiles_m = 1; tiles_m <= 19; tiles_m++)
      for (u32 tiles_n = 1; tiles_n <= 11; tiles_n++) {
        char seen[19][11] = {{0}};
        u32 xs = order ? tiles_m * tiles_n : tiles_m, ys = order ? 1 : tiles_n;
        for (u32 x = 0; x < xs; x++)
          for (u32 y = 0; y < ys; y++) {
            u32 i = tile_row(x, order, tiles_m, tiles_n);
            u32 j = tile_column(x, y, order, tiles_m, tiles_n);
            assert_true(i < tiles_m && j < tiles_n);
            assert_int_equal(seen[i][j]++, 0);
          }
      }
}

static void test_splits_cover_k(void **state) {
  (void)state;
  for (u32 tiles = 1; tiles <= 40; tiles++)
    for (u32 split = 1; split <= 16 && split <= tiles; split++) {
      u32 next = 0;
      for (u32 z = 0; z < split; z++) {
        assert_int_equal(split_begin(z, tiles / split, tiles % split), next);
        u32 count = split_count(z, tiles / split, tiles % split);
        assert_true(count >= 1);
        next += count;
      }
      assert_int_equal(next, tiles);
    }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_swizzle_keeps_rows),
      cmocka_unit_test(test_swizzle_has_no_conflicts),
      cmocka_unit_test(test_fragments),
      cmocka_unit_test(test_divide),
      cmocka_unit_test(test_tiles_each_once),
      cmocka_unit_test(test_splits_cover_k),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
