// The kernels of gradients of an adapter: what is between the matrix products and attention. Compiled together with
// kernels.cu, whose definitions they use.

// The gradient of RMSNorm by its input; with `add` not 0, `other` is added. One block per row of HIDDEN numbers.
extern "C" __global__ void rms_norm_backward(const u16* x, const u16* weight, const u16* by_out, const u16* other,
                                             u16* out, int add) {
  __shared__ float shared[32];
  const i64 row = (i64)blockIdx.x * HIDDEN;
  const uint4 *xs = (const uint4*)(x + row), *ws = (const uint4*)weight, *gs = (const uint4*)(by_out + row);
  const uint4* others = (const uint4*)(other + row);
  uint4* to = (uint4*)(out + row);
  float squares = 0.f, products = 0.f;
  for (int i = threadIdx.x; i < HIDDEN / 8; i += blockDim.x) {
    uint4 v = xs[i], w = ws[i], g = gs[i];
    u32 vs[4] = {v.x, v.y, v.z, v.w}, weights[4] = {w.x, w.y, w.z, w.w}, grads[4] = {g.x, g.y, g.z, g.w};
#pragma unroll
    for (int j = 0; j < 4; j++) {
      squares += low(vs[j]) * low(vs[j]) + high(vs[j]) * high(vs[j]);
      products += low(vs[j]) * low(weights[j]) * low(grads[j]) + high(vs[j]) * high(weights[j]) * high(grads[j]);
    }
  }
  float factor = rsqrtf(block_sum(squares, shared) / HIDDEN + NORM_EPS);
  float slope = block_sum(products, shared) * factor * factor * factor / HIDDEN;
  for (int i = threadIdx.x; i < HIDDEN / 8; i += blockDim.x) {
    uint4 v = xs[i], w = ws[i], g = gs[i], a = {0u, 0u, 0u, 0u}, o;
    if (add) a = others[i];
    u32 vs[4] = {v.x, v.y, v.z, v.w}, weights[4] = {w.x, w.y, w.z, w.w}, grads[4] = {g.x, g.y, g.z, g.w};
    u32 adds[4] = {a.x, a.y, a.z, a.w}, outs[4];
#pragma unroll
    for (int j = 0; j < 4; j++)
      outs[j] = pack(factor * low(weights[j]) * low(grads[j]) - slope * low(vs[j]) + low(adds[j]),
                     factor * high(weights[j]) * high(grads[j]) - slope * high(vs[j]) + high(adds[j]));
    o.x = outs[0]; o.y = outs[1]; o.z = outs[2]; o.w = outs[3];
    to[i] = o;
  }
}

// From the gradient by silu(gate) * up to those by gate and up, which take the place of both in `fused`, rows
// [gate, up]. The product itself takes the place of its gradient.
extern "C" __global__ void gate_backward(u16* fused, u16* inner) {
  int at = blockIdx.y * blockDim.x + threadIdx.x;
  if (at >= INTERMEDIATE / 8) return;
  uint4* gates = (uint4*)(fused + (i64)blockIdx.x * 2 * INTERMEDIATE) + at;
  uint4* ups = gates + INTERMEDIATE / 8;
  uint4* inners = (uint4*)(inner + (i64)blockIdx.x * INTERMEDIATE) + at;
  uint4 g = *gates, u = *ups, d = *inners;
  u32 gs[4] = {g.x, g.y, g.z, g.w}, us[4] = {u.x, u.y, u.z, u.w}, ds[4] = {d.x, d.y, d.z, d.w};
#pragma unroll
  for (int j = 0; j < 4; j++) {
    float by_gate[2], by_up[2], product[2];
#pragma unroll
    for (int k = 0; k < 2; k++) {
      float gate = k ? high(gs[j]) : low(gs[j]), up = k ? high(us[j]) : low(us[j]), by = k ? high(ds[j]) : low(ds[j]);
      float share = 1.f / (1.f + __expf(-gate));
      // Rounded after silu as in the forward pass.
      float silu = wide(narrow(gate * share));
      by_gate[k] = by * up * share * (1.f + gate * (1.f - share));
      by_up[k] = by * silu;
      product[k] = silu * up;
    }
    gs[j] = pack(by_gate[0], by_gate[1]);
    us[j] = pack(by_up[0], by_up[1]);
    ds[j] = pack(product[0], product[1]);
  }
  g.x = gs[0]; g.y = gs[1]; g.z = gs[2]; g.w = gs[3];
  u.x = us[0]; u.y = us[1]; u.z = us[2]; u.w = us[3];
  d.x = ds[0]; d.y = ds[1]; d.z = ds[2]; d.w = ds[3];
  *gates = g;
  *ups = u;
  *inners = d;
}

// The halves of a head, HEAD_DIM / 64 numbers of each for every lane.
#define PAIRS (HEAD_DIM / 64)

__device__ __forceinline__ void load_halves(float (&left)[PAIRS], float (&right)[PAIRS], const u16* from) {
  int at = (threadIdx.x % 32) * PAIRS;
#if HEAD_DIM == 128
  u32 first = *(const u32*)(from + at), second = *(const u32*)(from + HEAD_DIM / 2 + at);
  left[0] = low(first); left[1] = high(first);
  right[0] = low(second); right[1] = high(second);
#else
  left[0] = wide(from[at]);
  right[0] = wide(from[HEAD_DIM / 2 + at]);
#endif
}

__device__ __forceinline__ void store_halves(const float (&left)[PAIRS], const float (&right)[PAIRS], u16* to) {
  int at = (threadIdx.x % 32) * PAIRS;
#if HEAD_DIM == 128
  *(u32*)(to + at) = pack(left[0], left[1]);
  *(u32*)(to + HEAD_DIM / 2 + at) = pack(right[0], right[1]);
#else
  to[at] = narrow(left[0]);
  to[HEAD_DIM / 2 + at] = narrow(right[0]);
#endif
}

// Queries, keys and values of packed tokens for attention, the first two with rotary positions. A token's keys and values
// go to all places where sequences attend to them: those from offsets[token] on, up to offsets[token + 1]. The tables have a
// row per token, the sines of the first half negated. One warp per head, without head norms.
extern "C" __global__ void spread_heads(const u16* qkv, const u16* cosines, const u16* sines, const int* offsets,
                                        const int* places, u16* queries, u16* keys, u16* values) {
  int head = blockIdx.y * (blockDim.x / 32) + threadIdx.x / 32;
  if (head >= ALL_HEADS) return;
  const i64 token = blockIdx.x;
  float left[PAIRS], right[PAIRS];
  load_halves(left, right, qkv + (token * ALL_HEADS + head) * HEAD_DIM);
  if (head < HEADS + KV_HEADS) {
    float cos1[PAIRS], cos2[PAIRS], sin1[PAIRS], sin2[PAIRS];
    load_halves(cos1, cos2, cosines + token * HEAD_DIM);
    load_halves(sin1, sin2, sines + token * HEAD_DIM);
#pragma unroll
    for (int i = 0; i < PAIRS; i++) {
      float l = left[i] * cos1[i] + right[i] * sin1[i];
      right[i] = right[i] * cos2[i] + left[i] * sin2[i];
      left[i] = l;
    }
  }
  if (head < HEADS) {
    store_halves(left, right, queries + (token * HEADS + head) * HEAD_DIM);
    return;
  }
  int own = (head - HEADS) % KV_HEADS;
  u16* to = head < HEADS + KV_HEADS ? keys : values;
  for (int use = offsets[token]; use < offsets[token + 1]; use++)
    store_halves(left, right, to + ((i64)places[use] * KV_HEADS + own) * HEAD_DIM);
}

// The gradient by `qkv` from those by what spread_heads wrote: those of all places of a token are added in single
// precision, then rotated back.
extern "C" __global__ void collect_heads(const u16* queries, const u16* keys, const u16* values, const u16* cosines,
                                         const u16* sines, const int* offsets, const int* places, u16* qkv) {
  int head = blockIdx.y * (blockDim.x / 32) + threadIdx.x / 32;
  if (head >= ALL_HEADS) return;
  const i64 token = blockIdx.x;
  float left[PAIRS], right[PAIRS];
  if (head < HEADS) {
    load_halves(left, right, queries + (token * HEADS + head) * HEAD_DIM);
  } else {
    int own = (head - HEADS) % KV_HEADS;
    const u16* from = head < HEADS + KV_HEADS ? keys : values;
#pragma unroll
    for (int i = 0; i < PAIRS; i++) left[i] = right[i] = 0.f;
    for (int use = offsets[token]; use < offsets[token + 1]; use++) {
      float l[PAIRS], r[PAIRS];
      load_halves(l, r, from + ((i64)places[use] * KV_HEADS + own) * HEAD_DIM);
#pragma unroll
      for (int i = 0; i < PAIRS; i++) {
        left[i] += l[i];
        right[i] += r[i];
      }
    }
  }
  if (head < HEADS + KV_HEADS) {
    float cos1[PAIRS], cos2[PAIRS], sin1[PAIRS], sin2[PAIRS];
    load_halves(cos1, cos2, cosines + token * HEAD_DIM);
    load_halves(sin1, sin2, sines + token * HEAD_DIM);
#pragma unroll
    for (int i = 0; i < PAIRS; i++) {
      float l = left[i] * cos1[i] + right[i] * sin2[i];
      right[i] = right[i] * cos2[i] + left[i] * sin1[i];
      left[i] = l;
    }
  }
  store_halves(left, right, qkv + (token * ALL_HEADS + head) * HEAD_DIM);
}
