// Matrix products with few rows, as the decode steps of the last conversations have: out = x W^T. They are bound by
// reading the weights, which the library's kernels for such shapes do at a half of the device's speed and less. Compiled
// together with kernels.cu, whose definitions they use.

// `outputs` columns of the result from `columns` inputs, for TILES * 8 rows. A block has 16 outputs; its warps share the
// inputs, 32 at a time: every lane reads 16 bytes of two rows of weights. The matrix instructions add over inputs in any
// order, as long as it is the same for both operands. Shared memory: warps * 16 * TILES * 8 floats. With `add` the result
// is added to `out`; with `biased`, `bias` too.
template <int TILES>
__device__ __forceinline__ void few_rows(const u16* x, const u16* weight, const u16* bias, u16* out, int columns,
                                         int outputs, int biased, int add) {
  extern __shared__ float sums[];
  constexpr int ROWS = TILES * 8, AHEAD = 4;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, warps = blockDim.x / 32;
  const int row = lane / 4, quarter = lane % 4, first = blockIdx.x * 16;
  const uint4* upper = (const uint4*)(weight + (i64)(first + row) * columns) + quarter;
  const uint4* lower = upper + columns;
  const uint4* inputs = (const uint4*)(x + (i64)row * columns) + quarter;
  float found[TILES][4];
#pragma unroll
  for (int tile = 0; tile < TILES; tile++)
#pragma unroll
    for (int i = 0; i < 4; i++) found[tile][i] = 0.f;
  const int steps = columns / 32;
  for (int begin = warp; begin < steps; begin += AHEAD * warps) {
    // Loads of several steps are under way at once.
    uint4 a[AHEAD], b[AHEAD];
#pragma unroll
    for (int i = 0; i < AHEAD; i++) {
      int step = begin + i * warps;
      a[i] = b[i] = make_uint4(0u, 0u, 0u, 0u);
      if (step < steps) {
        a[i] = __ldcs(upper + step * 4);
        b[i] = __ldcs(lower + step * 4);
      }
    }
#pragma unroll
    for (int i = 0; i < AHEAD; i++) {
      int step = begin + i * warps;
      if (step >= steps) break;
      u32 early[4] = {a[i].x, b[i].x, a[i].y, b[i].y}, late[4] = {a[i].z, b[i].z, a[i].w, b[i].w};
#pragma unroll
      for (int tile = 0; tile < TILES; tile++) {
        uint4 v = inputs[(i64)tile * columns + step * 4];
        multiply(found[tile], early, v.x, v.y);
        multiply(found[tile], late, v.z, v.w);
      }
    }
  }
#pragma unroll
  for (int tile = 0; tile < TILES; tile++)
#pragma unroll
    for (int i = 0; i < 4; i++)
      sums[(warp * 16 + row + (i / 2) * 8) * ROWS + tile * 8 + quarter * 2 + i % 2] = found[tile][i];
  __syncthreads();
  for (int at = threadIdx.x; at < 16 * ROWS; at += blockDim.x) {
    int output = at % 16, place = at / 16;
    float sum = 0.f;
    for (int w = 0; w < warps; w++) sum += sums[(w * 16 + output) * ROWS + place];
    if (biased) sum += wide(bias[first + output]);
    u16* to = out + (i64)place * outputs + first + output;
    *to = narrow(add ? sum + wide(*to) : sum);
  }
}

#define FEW_ROWS(NAME, TILES)                                                                                         \
  extern "C" __global__ void __launch_bounds__(512) NAME(const u16* x, const u16* weight, const u16* bias, u16* out, \
                                                         int columns, int outputs, int biased, int add) {            \
    few_rows<TILES>(x, weight, bias, out, columns, outputs, biased, add);                                            \
  }

FEW_ROWS(few_rows_8, 1)
FEW_ROWS(few_rows_16, 2)
FEW_ROWS(few_rows_32, 4)
