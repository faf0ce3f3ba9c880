// conv_mma.cu - convolution as an implicit matrix product: x[n,h,w,c],
// w[k,r,s,c], y[n,p,q,k].
//
// A row of A is an output place (n, p, q), a column of B an output channel,
// and K runs over (r, s, c), c fastest, as the weights are stored.  A is never
// built: each thread copies pieces of channels straight from x.  A piece has
// the same K in every row that the thread copies, so (r, s, c) is found once
// for a tile of K, by two multiplications; what differs between rows (where
// the window begins, and the image's borders) is found once for the block.
// Pieces that fall on the padding are zero-filled by the copy itself.
//
// CONV_PLAIN: r = s = 1 and no padding; then A is a matrix whose rows are
// pixels, some left out by the stride.
#define KERNEL_PARAMETERS                                                     \
  const ELEMENT *x, const ELEMENT *w, OUTPUT *out, float *partial,            \
      int *semaphore, int m, int n, int k, int order, int split,              \
      int split_base, int split_extra, int pitch, int height, int width,      \
      int channels, int q, int stride_h, int stride_w, int pad_h, int pad_w,  \
      int dilation_h, int dilation_w, int filter_w, u32 pq, u32 pq_magic,     \
      u32 pq_shift, u32 q_magic, u32 q_shift, u32 c_magic, u32 c_shift,       \
      u32 tap_magic, u32 tap_shift

#define OUT_START 0

struct window_geometry {
  int height, width, channels, q, stride_h, stride_w, pad_h, pad_w;
  int dilation_h, dilation_w, filter_w;
  u32 pq, pq_magic, pq_shift, q_magic, q_shift;
  u32 c_magic, c_shift, tap_magic, tap_shift;
};
#define GEOMETRY                                                              \
  {height,     width,    channels, q,       stride_h, stride_w, pad_h,        \
   pad_w,      dilation_h, dilation_w, filter_w, pq,  pq_magic, pq_shift,     \
   q_magic,    q_shift,  c_magic,  c_shift, tap_magic,  tap_shift}

struct window_loader {
  typedef panel<TILE_M, TILE_K * SIZE, A_VECTOR> shape;
  window_geometry g;
  const ELEMENT *from;
  int offset[shape::passes]; // element of x at the window's first corner
#if !CONV_PLAIN
  int top[shape::passes], left[shape::passes]; // of the window, in the image
#else
  u32 rows; // bit i: the row of pass i is an output place
#endif
  int k_count;
  DEVICE_MEMBER void start(const ELEMENT *x, int first, int m, int k,
                           const window_geometry &geometry) {
    g = geometry;
    from = x;
    k_count = k;
#if CONV_PLAIN
    rows = 0;
#endif
#pragma unroll
    for (int i = 0; i < shape::passes; i++) {
      int asked = first + shape::row(i), row = asked < m ? asked : m - 1;
      u32 image = divide(row, g.pq_magic, g.pq_shift);
      u32 place = row - image * g.pq;
      u32 p = divide(place, g.q_magic, g.q_shift), at_q = place - p * g.q;
      int y = (int)p * g.stride_h - g.pad_h;
      int z = (int)at_q * g.stride_w - g.pad_w;
      offset[i] = (((int)image * g.height + y) * g.width + z) * g.channels;
#if CONV_PLAIN
      rows |= (u32)(asked < m) << i;
#else
      // A row beyond the last: a window above every image.
      top[i] = asked < m ? y : -(1 << 30);
      left[i] = z;
#endif
    }
  }
  // Has all of the above computed before this place: left alone, the assembler
  // moves it behind the wait for the predecessor, where time is dearer.  In
  // every value the upper two bits are equal (magnitudes are at most 2^30), and
  // so they are in an exclusive-or of values; the trap is never taken, but the
  // assembler cannot know.
  DEVICE_MEMBER void settle() const {
    u32 all = 0;
#pragma unroll
    for (int i = 0; i < shape::passes; i++) {
      all ^= offset[i];
#if !CONV_PLAIN
      all ^= top[i] ^ left[i];
#endif
    }
    if ((int)(all ^ all << 1) < 0) asm volatile("trap;");
  }
  DEVICE_MEMBER void load(u32 to, int tile) const {
    int at = tile * TILE_K + shape::column();
#if CONV_PLAIN
    u32 valid = at < k_count ? rows : 0;
#pragma unroll
    for (int i = 0; i < shape::passes; i++)
      if (shape::has(i))
        copy_async<A_VECTOR>(to + shape::offset(i), from + offset[i] + at,
                             valid >> i & 1);
#else
    u32 tap = divide(at, g.c_magic, g.c_shift), c = at - tap * g.channels;
    u32 r = divide(tap, g.tap_magic, g.tap_shift), s = tap - r * g.filter_w;
    int down = r * g.dilation_h, right = s * g.dilation_w;
    int delta = (down * g.width + right) * g.channels + c;
#pragma unroll
    for (int i = 0; i < shape::passes; i++) {
      bool valid = at < k_count && (u32)(top[i] + down) < (u32)g.height &&
                   (u32)(left[i] + right) < (u32)g.width;
      if (shape::has(i))
        copy_async<A_VECTOR>(to + shape::offset(i), from + offset[i] + delta,
                             valid);
    }
#endif
  }
};
typedef window_loader a_loader;
#define START_A(loader)                                                       \
  const window_geometry geometry = GEOMETRY;                                  \
  loader.start(x, row0, m, k, geometry)
#define START_B(loader) loader.start(w, column0, n, k, k)

// What the epilogue may ask about a row; nothing is computed unless it does.
DEVICE int image_of(u32 row, const window_geometry &g) {
  return divide(row, g.pq_magic, g.pq_shift);
}
DEVICE int p_of(u32 row, const window_geometry &g) {
  return divide(row - image_of(row, g) * g.pq, g.q_magic, g.q_shift);
}
DEVICE int q_of(u32 row, const window_geometry &g) {
  return row - image_of(row, g) * g.pq - p_of(row, g) * g.q;
}
#define POINT(row, column) \
  image_of(row, geometry), column, p_of(row, geometry), q_of(row, geometry)
