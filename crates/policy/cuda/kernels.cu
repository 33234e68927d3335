// The kernels of the sampler on a GPU: everything of a step but the matrix products. Compiled at run time for the device
// and the network at hand; nothing is included, so that no CUDA headers are needed.
//
// Defined by the compiling program: HEADS, KV_HEADS, HEAD_DIM (64 or 128), HIDDEN, INTERMEDIATE, VOCABULARY, HEAD_NORMS
// (0 or 1), FLOAT_LOGITS (1 where logits are in single precision), SM_SCALE (the factor of attention scores) and NORM_EPS.
//
// Keys and values are in pages of PAGE tokens, each [2 * KV_HEADS][PAGE][HEAD_DIM]: keys of all heads, then values. The
// table holds the address of every page of every slot in the first layer; a layer's offset is added to it.

typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef long long i64;

#define PAGE 64
#define GROUP (HEADS / KV_HEADS)
#define ALL_HEADS (HEADS + 2 * KV_HEADS)
#define STEPS (HEAD_DIM / 16)
#define CHUNKS (HEAD_DIM / 8)
#define ROW_BYTES (HEAD_DIM * 2)
#define FULL 0xffffffffu
#define CHUNK 2048

// A token of a step, or a row of logits. Negative slots are idle.
struct Row {
  i64 token;
  i64 position;
  i64 slot;
  // The page of its keys and values, in the first layer.
  i64 page;
  double uniform;
  double inverse_temperature;
  double greedy;
  i64 unused;
};

__device__ __forceinline__ float negative_infinity() { return __int_as_float(0xff800000); }
__device__ __forceinline__ float wide(u16 x) { return __uint_as_float(((u32)x) << 16); }
__device__ __forceinline__ float low(u32 x) { return __uint_as_float(x << 16); }
__device__ __forceinline__ float high(u32 x) { return __uint_as_float(x & 0xffff0000u); }

// Two numbers rounded to bf16; the first is in the lower half.
__device__ __forceinline__ u32 pack(float first, float second) {
  u32 out;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(out) : "f"(second), "f"(first));
  return out;
}

__device__ __forceinline__ u16 narrow(float x) { return (u16)(pack(x, 0.f) & 0xffffu); }

// 2^x. Faster than exp2f, to about two units in the last place.
__device__ __forceinline__ float power(float x) {
  float out;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(out) : "f"(x));
  return out;
}

__device__ __forceinline__ float warp_sum(float x) {
#pragma unroll
  for (int step = 16; step > 0; step >>= 1) x += __shfl_xor_sync(FULL, x, step);
  return x;
}

// The sum over a block of at most 1024 threads, for all of them.
__device__ __forceinline__ float block_sum(float x, float* shared) {
  int warp = threadIdx.x / 32, lane = threadIdx.x % 32, warps = blockDim.x / 32;
  x = warp_sum(x);
  if (lane == 0) shared[warp] = x;
  __syncthreads();
  x = warp_sum(lane < warps ? shared[lane] : 0.f);
  __syncthreads();
  return x;
}

// Embeddings of the tokens; pages of new tokens are entered into the table.
extern "C" __global__ void embed(const Row* rows, const u16* embedding, u16* x, i64* table, int max_pages) {
  Row row = rows[blockIdx.x];
  if (threadIdx.x == 0 && row.slot >= 0) table[row.slot * max_pages + row.position / PAGE] = row.page;
  const uint4* from = (const uint4*)(embedding + row.token * HIDDEN);
  uint4* to = (uint4*)(x + (i64)blockIdx.x * HIDDEN);
  for (int i = threadIdx.x; i < HIDDEN / 8; i += blockDim.x) to[i] = from[i];
}

// RMSNorm of rows of HIDDEN numbers.
extern "C" __global__ void rms_norm(const u16* x, const u16* weight, u16* out) {
  __shared__ float shared[32];
  const uint4* from = (const uint4*)(x + (i64)blockIdx.x * HIDDEN);
  const uint4* scales = (const uint4*)weight;
  uint4* to = (uint4*)(out + (i64)blockIdx.x * HIDDEN);
  float sum = 0.f;
  for (int i = threadIdx.x; i < HIDDEN / 8; i += blockDim.x) {
    uint4 v = from[i];
    u32 parts[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
    for (int j = 0; j < 4; j++) sum += low(parts[j]) * low(parts[j]) + high(parts[j]) * high(parts[j]);
  }
  float factor = rsqrtf(block_sum(sum, shared) / HIDDEN + NORM_EPS);
  for (int i = threadIdx.x; i < HIDDEN / 8; i += blockDim.x) {
    uint4 v = from[i], w = scales[i], o;
    u32 parts[4] = {v.x, v.y, v.z, v.w}, ws[4] = {w.x, w.y, w.z, w.w}, outs[4];
#pragma unroll
    for (int j = 0; j < 4; j++)
      outs[j] = pack(low(parts[j]) * factor * low(ws[j]), high(parts[j]) * factor * high(ws[j]));
    o.x = outs[0]; o.y = outs[1]; o.z = outs[2]; o.w = outs[3];
    to[i] = o;
  }
}

// Head norms and rotary positions of queries (in place) and keys; keys and values go to their page. One warp per head.
// The tables are [positions][HEAD_DIM], the sines of the first half negated.
extern "C" __global__ void rotate(const Row* rows, u16* qkv, const u16* cosines, const u16* sines,
                                  const u16* query_norm, const u16* key_norm, i64 layer) {
  constexpr int PAIRS = HEAD_DIM / 64;
  int head = blockIdx.y * (blockDim.x / 32) + threadIdx.x / 32, lane = threadIdx.x % 32;
  Row row = rows[blockIdx.x];
  if (head >= ALL_HEADS || row.slot < 0) return;
  u16* from = qkv + ((i64)blockIdx.x * ALL_HEADS + head) * HEAD_DIM;
  float left[PAIRS], right[PAIRS];
#pragma unroll
  for (int i = 0; i < PAIRS; i++) {
    left[i] = wide(from[lane * PAIRS + i]);
    right[i] = wide(from[HEAD_DIM / 2 + lane * PAIRS + i]);
  }
  bool rotated = head < HEADS + KV_HEADS;
  if (HEAD_NORMS && rotated) {
    const u16* weight = head < HEADS ? query_norm : key_norm;
    float sum = 0.f;
#pragma unroll
    for (int i = 0; i < PAIRS; i++) sum += left[i] * left[i] + right[i] * right[i];
    float factor = rsqrtf(warp_sum(sum) / HEAD_DIM + NORM_EPS);
#pragma unroll
    for (int i = 0; i < PAIRS; i++) {
      // Rounded here as the network in training does.
      left[i] = wide(narrow(left[i] * factor * wide(weight[lane * PAIRS + i])));
      right[i] = wide(narrow(right[i] * factor * wide(weight[HEAD_DIM / 2 + lane * PAIRS + i])));
    }
  }
  if (rotated) {
    const u16* cosine = cosines + row.position * HEAD_DIM;
    const u16* sine = sines + row.position * HEAD_DIM;
#pragma unroll
    for (int i = 0; i < PAIRS; i++) {
      int at = lane * PAIRS + i, other = HEAD_DIM / 2 + at;
      float l = left[i] * wide(cosine[at]) + right[i] * wide(sine[at]);
      right[i] = right[i] * wide(cosine[other]) + left[i] * wide(sine[other]);
      left[i] = l;
    }
  }
  u16* to = from;
  if (head >= HEADS)
    to = (u16*)(row.page + layer) + ((i64)(head - HEADS) * PAGE + row.position % PAGE) * HEAD_DIM;
#pragma unroll
  for (int i = 0; i < PAIRS; i++) {
    to[lane * PAIRS + i] = narrow(left[i]);
    to[HEAD_DIM / 2 + lane * PAIRS + i] = narrow(right[i]);
  }
}

// silu(gate) * up, of rows [gate, up].
extern "C" __global__ void gate(const u16* fused, u16* out) {
  int at = blockIdx.y * blockDim.x + threadIdx.x;
  if (at >= INTERMEDIATE / 8) return;
  const uint4* from = (const uint4*)(fused + (i64)blockIdx.x * 2 * INTERMEDIATE);
  uint4 g = from[at], u = from[INTERMEDIATE / 8 + at], o;
  u32 gs[4] = {g.x, g.y, g.z, g.w}, us[4] = {u.x, u.y, u.z, u.w}, outs[4];
#pragma unroll
  for (int j = 0; j < 4; j++) {
    // Rounded after silu as the network in training does.
    float first = low(gs[j]) / (1.f + __expf(-low(gs[j])));
    float second = high(gs[j]) / (1.f + __expf(-high(gs[j])));
    u32 rounded = pack(first, second);
    outs[j] = pack(low(rounded) * low(us[j]), high(rounded) * high(us[j]));
  }
  o.x = outs[0]; o.y = outs[1]; o.z = outs[2]; o.w = outs[3];
  ((uint4*)(out + (i64)blockIdx.x * INTERMEDIATE))[at] = o;
}

// ---- attention ----

__device__ __forceinline__ u32 shared_address(const void* pointer) {
  return (u32)__cvta_generic_to_shared(pointer);
}

// 16 bytes to shared memory without waiting; zeros where not valid.
__device__ __forceinline__ void copy_async(u32 to, const void* from, bool valid) {
  int bytes = valid ? 16 : 0;
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(bytes) : "memory");
}

__device__ __forceinline__ void copies_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }

template <int LEFT>
__device__ __forceinline__ void copies_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(LEFT) : "memory");
}

__device__ __forceinline__ void load4(u32 (&out)[4], u32 address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
               : "r"(address)
               : "memory");
}

__device__ __forceinline__ void load4_transposed(u32 (&out)[4], u32 address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
               : "r"(address)
               : "memory");
}

__device__ __forceinline__ void multiply(float (&sum)[4], const u32 (&a)[4], u32 b0, u32 b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// The place of 16 bytes of a row in shared memory: swizzled, so that eight rows of a column are in different banks.
__device__ __forceinline__ u32 place(u32 base, int row, int chunk) {
  return base + row * ROW_BYTES + ((chunk ^ (row & 7)) << 4);
}

// Sixteen rows of queries, their running maxima and sums, and what they have attended to so far. Lane l holds columns
// 2 * (l % 4) and the next of rows l / 4 and l / 4 + 8, as the matrix instructions do.
struct Attention {
  u32 queries[STEPS][4];
  float out[STEPS * 2][4];
  float largest[2];
  float sum[2];

  __device__ __forceinline__ void begin() {
#pragma unroll
    for (int i = 0; i < STEPS * 2; i++)
#pragma unroll
      for (int j = 0; j < 4; j++) out[i][j] = 0.f;
    largest[0] = largest[1] = negative_infinity();
    sum[0] = sum[1] = 0.f;
  }

  // Queries of two rows; null for rows that do not exist.
  __device__ __forceinline__ void load(const u16* first, const u16* second) {
    int column = (threadIdx.x % 4) * 2;
#pragma unroll
    for (int step = 0; step < STEPS; step++)
#pragma unroll
      for (int half = 0; half < 2; half++) {
        int at = step * 16 + half * 8 + column;
        queries[step][half * 2] = first ? *(const u32*)(first + at) : 0u;
        queries[step][half * 2 + 1] = second ? *(const u32*)(second + at) : 0u;
      }
  }

  // Attends to TILES * 16 keys, of which this row may see those below `visible`.
  template <int TILES>
  __device__ __forceinline__ void attend(u32 keys, u32 values, int first_key, const int (&visible)[2], bool masked) {
    int lane = threadIdx.x % 32;
    float scores[TILES * 2][4];
#pragma unroll
    for (int i = 0; i < TILES * 2; i++)
#pragma unroll
      for (int j = 0; j < 4; j++) scores[i][j] = 0.f;
#pragma unroll
    for (int step = 0; step < STEPS; step++)
#pragma unroll
      for (int tile = 0; tile < TILES; tile++) {
        u32 b[4];
        load4(b, place(keys, tile * 16 + (lane & 7) + ((lane >> 4) << 3), 2 * step + ((lane >> 3) & 1)));
        multiply(scores[tile * 2], queries[step], b[0], b[1]);
        multiply(scores[tile * 2 + 1], queries[step], b[2], b[3]);
      }
    if (masked) {
#pragma unroll
      for (int i = 0; i < TILES * 2; i++)
#pragma unroll
        for (int j = 0; j < 4; j++) {
          int key = first_key + i * 8 + (lane % 4) * 2 + (j & 1);
          if (key >= visible[j >> 1]) scores[i][j] = negative_infinity();
        }
    }
    const float factor = SM_SCALE * 1.4426950408889634f;
#pragma unroll
    for (int half = 0; half < 2; half++) {
      float top = largest[half];
#pragma unroll
      for (int i = 0; i < TILES * 2; i++) top = fmaxf(top, fmaxf(scores[i][half * 2], scores[i][half * 2 + 1]));
      top = fmaxf(top, __shfl_xor_sync(FULL, top, 1));
      top = fmaxf(top, __shfl_xor_sync(FULL, top, 2));
      float shrink = power((largest[half] - top) * factor);
      largest[half] = top;
      sum[half] *= shrink;
      float base = top * factor;
#pragma unroll
      for (int i = 0; i < TILES * 2; i++)
#pragma unroll
        for (int j = 0; j < 2; j++) {
          float share = power(scores[i][half * 2 + j] * factor - base);
          scores[i][half * 2 + j] = share;
          sum[half] += share;
        }
#pragma unroll
      for (int i = 0; i < STEPS * 2; i++) {
        out[i][half * 2] *= shrink;
        out[i][half * 2 + 1] *= shrink;
      }
    }
#pragma unroll
    for (int tile = 0; tile < TILES; tile++) {
      u32 shares[4] = {pack(scores[tile * 2][0], scores[tile * 2][1]), pack(scores[tile * 2][2], scores[tile * 2][3]),
                       pack(scores[tile * 2 + 1][0], scores[tile * 2 + 1][1]),
                       pack(scores[tile * 2 + 1][2], scores[tile * 2 + 1][3])};
#pragma unroll
      for (int step = 0; step < STEPS; step++) {
        u32 b[4];
        load4_transposed(b, place(values, tile * 16 + (lane & 7) + ((lane >> 3) & 1) * 8, 2 * step + (lane >> 4)));
        multiply(out[step * 2], shares, b[0], b[1]);
        multiply(out[step * 2 + 1], shares, b[2], b[3]);
      }
    }
  }

  // Completes the sums, which until now were each lane's own.
  __device__ __forceinline__ void finish() {
#pragma unroll
    for (int half = 0; half < 2; half++) {
      sum[half] += __shfl_xor_sync(FULL, sum[half], 1);
      sum[half] += __shfl_xor_sync(FULL, sum[half], 2);
    }
  }
};

#define WARPS 4
#ifndef STAGES
#define STAGES 3
#endif
#define TILE_BYTES (16 * ROW_BYTES)

// One token of every sequence: the queries of the heads that share keys are the rows of a tile. Every warp reads 16 keys
// at a time on its own; blocks share the keys of a sequence (gridDim.x of them), and the last one joins the results.
// Shared memory: WARPS * STAGES * 2 * TILE_BYTES. Partial results are [rows][KV_HEADS][splits][GROUP][HEAD_DIM + 2].
extern "C" __global__ void __launch_bounds__(WARPS * 32)
    attend_one(const Row* rows, const u16* qkv, const i64* table, int max_pages, i64 layer, u16* out, float* partial,
               u32* arrived) {
  extern __shared__ __align__(128) unsigned char memory[];
  __shared__ float tops[WARPS][16], sums[WARPS][16];
  __shared__ u32 last;
  const int split = blockIdx.x, splits = gridDim.x, head = blockIdx.y, index = blockIdx.z;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const i64 slot = rows[index].slot;
  if (slot < 0) return;
  const int length = (int)rows[index].position + 1;
  const int tiles = (length + 15) / 16;
  const int begin = (int)((i64)tiles * split / splits), end = (int)((i64)tiles * (split + 1) / splits);
  const i64* pages = table + slot * max_pages;
  Attention state;
  state.begin();
  const u16* first = qkv + ((i64)index * ALL_HEADS + head * GROUP) * HEAD_DIM;
  state.load(lane / 4 < GROUP ? first + (lane / 4) * HEAD_DIM : nullptr,
             lane / 4 + 8 < GROUP ? first + (lane / 4 + 8) * HEAD_DIM : nullptr);
  const u32 base = shared_address(memory) + warp * (STAGES * 2 * TILE_BYTES);
  const int visible[2] = {length, length};

  auto fetch = [&](int tile, int stage) {
    if (tile < end) {
      const unsigned char* page = (const unsigned char*)(pages[tile / 4] + layer);
      const unsigned char* keys = page + ((i64)head * PAGE + (tile % 4) * 16) * ROW_BYTES;
      const unsigned char* values = keys + (i64)KV_HEADS * PAGE * ROW_BYTES;
      u32 to = base + stage * 2 * TILE_BYTES;
#pragma unroll
      for (int i = 0; i < 16 * CHUNKS / 32; i++) {
        int piece = i * 32 + lane, row = piece / CHUNKS, chunk = piece % CHUNKS;
        copy_async(place(to, row, chunk), keys + piece * 16, tile * 16 + row < length);
      }
#pragma unroll
      for (int i = 0; i < 16 * CHUNKS / 32; i++) {
        int piece = i * 32 + lane, row = piece / CHUNKS, chunk = piece % CHUNKS;
        copy_async(place(to + TILE_BYTES, row, chunk), values + piece * 16, tile * 16 + row < length);
      }
    }
    copies_commit();
  };

#pragma unroll
  for (int stage = 0; stage < STAGES - 1; stage++) fetch(begin + warp + stage * WARPS, stage);
  int stage = 0, ahead = STAGES - 1;
  for (int tile = begin + warp; tile < end; tile += WARPS) {
    fetch(tile + (STAGES - 1) * WARPS, ahead);
    copies_wait<STAGES - 1>();
    __syncwarp();
    u32 from = base + stage * 2 * TILE_BYTES;
    state.attend<1>(from, from + TILE_BYTES, tile * 16, visible, tile * 16 + 16 > length);
    __syncwarp();
    stage = stage + 1 == STAGES ? 0 : stage + 1;
    ahead = ahead + 1 == STAGES ? 0 : ahead + 1;
  }
  copies_wait<0>();
  state.finish();
  __syncthreads();
  // The warps of the block.
  float* outs = (float*)memory;
#pragma unroll
  for (int half = 0; half < 2; half++) {
    int row = lane / 4 + half * 8;
    if (row < GROUP) {
      if (lane % 4 == 0) {
        tops[warp][row] = state.largest[half];
        sums[warp][row] = state.sum[half];
      }
#pragma unroll
      for (int i = 0; i < STEPS * 2; i++) {
        float* to = outs + (warp * GROUP + row) * HEAD_DIM + i * 8 + (lane % 4) * 2;
        to[0] = state.out[i][half * 2];
        to[1] = state.out[i][half * 2 + 1];
      }
    }
  }
  __syncthreads();
  const float factor = SM_SCALE * 1.4426950408889634f;
  const i64 place_of_row = ((i64)index * HEADS + head * GROUP) * HEAD_DIM;
  float* mine = partial + (((i64)index * KV_HEADS + head) * splits + split) * (GROUP * (HEAD_DIM + 2));
  for (int at = threadIdx.x; at < GROUP * HEAD_DIM; at += WARPS * 32) {
    int row = at / HEAD_DIM;
    float top = negative_infinity(), sum = 0.f, value = 0.f;
#pragma unroll
    for (int w = 0; w < WARPS; w++) top = fmaxf(top, tops[w][row]);
    if (top > negative_infinity()) {
#pragma unroll
      for (int w = 0; w < WARPS; w++) {
        float share = power((tops[w][row] - top) * factor);
        sum += sums[w][row] * share;
        value += outs[w * GROUP * HEAD_DIM + at] * share;
      }
    }
    if (splits == 1) {
      out[place_of_row + at] = narrow(value / sum);
    } else {
      mine[at] = value;
      if (at % HEAD_DIM == 0) {
        mine[GROUP * HEAD_DIM + row * 2] = top;
        mine[GROUP * HEAD_DIM + row * 2 + 1] = sum;
      }
    }
  }
  if (splits == 1) return;
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) last = atomicAdd(arrived + index * KV_HEADS + head, 1u);
  __syncthreads();
  if (last != splits - 1) return;
  __threadfence();
  if (threadIdx.x == 0) arrived[index * KV_HEADS + head] = 0;
  const float* all = partial + (((i64)index * KV_HEADS + head) * splits) * (GROUP * (HEAD_DIM + 2));
  for (int at = threadIdx.x; at < GROUP * HEAD_DIM; at += WARPS * 32) {
    int row = at / HEAD_DIM;
    float top = negative_infinity(), sum = 0.f, value = 0.f;
    for (int s = 0; s < splits; s++)
      top = fmaxf(top, __ldcg(all + s * (GROUP * (HEAD_DIM + 2)) + GROUP * HEAD_DIM + row * 2));
    for (int s = 0; s < splits; s++) {
      const float* one = all + s * (GROUP * (HEAD_DIM + 2));
      float share = power((__ldcg(one + GROUP * HEAD_DIM + row * 2) - top) * factor);
      sum += __ldcg(one + GROUP * HEAD_DIM + row * 2 + 1) * share;
      value += __ldcg(one + at) * share;
    }
    out[place_of_row + at] = narrow(value / sum);
  }
}

// New tokens of some sequences. A block has up to 64 rows: consecutive tokens of one sequence, each with the heads that
// share keys. `tiles` holds pairs: the first token and the number of tokens. Shared memory: 4 * PAGE * ROW_BYTES.
extern "C" __global__ void __launch_bounds__(WARPS * 32)
    attend_many(const Row* rows, const u16* qkv, const i64* table, int max_pages, i64 layer, u16* out,
                const int* tiles) {
  extern __shared__ __align__(128) unsigned char memory[];
  const int first = tiles[blockIdx.x * 2], count = tiles[blockIdx.x * 2 + 1], head = blockIdx.y;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int position = (int)rows[first].position, length = position + count;
  const i64* pages = table + rows[first].slot * max_pages;
  Attention state;
  state.begin();
  const u16* queries[2];
  u16* outs[2];
  int visible[2];
#pragma unroll
  for (int half = 0; half < 2; half++) {
    int row = warp * 16 + lane / 4 + half * 8, token = row / GROUP;
    bool valid = token < count;
    i64 heads = head * GROUP + row % GROUP;
    queries[half] = valid ? qkv + ((i64)(first + token) * ALL_HEADS + heads) * HEAD_DIM : nullptr;
    outs[half] = valid ? out + ((i64)(first + token) * HEADS + heads) * HEAD_DIM : nullptr;
    visible[half] = valid ? position + token + 1 : 1;
  }
  state.load(queries[0], queries[1]);
  const u32 base = shared_address(memory);
  const int blocks = (length + PAGE - 1) / PAGE;

  auto fetch = [&](int block) {
    if (block < blocks) {
      const unsigned char* page = (const unsigned char*)(pages[block] + layer);
      const unsigned char* keys = page + (i64)head * PAGE * ROW_BYTES;
      const unsigned char* values = keys + (i64)KV_HEADS * PAGE * ROW_BYTES;
      u32 to = base + (block % 2) * (2 * PAGE * ROW_BYTES);
#pragma unroll
      for (int i = 0; i < PAGE * CHUNKS / (WARPS * 32); i++) {
        int piece = i * WARPS * 32 + threadIdx.x, row = piece / CHUNKS, chunk = piece % CHUNKS;
        bool valid = block * PAGE + row < length;
        copy_async(place(to, row, chunk), keys + piece * 16, valid);
        copy_async(place(to + PAGE * ROW_BYTES, row, chunk), values + piece * 16, valid);
      }
    }
    copies_commit();
  };

  fetch(0);
  for (int block = 0; block < blocks; block++) {
    fetch(block + 1);
    copies_wait<1>();
    __syncthreads();
    u32 from = base + (block % 2) * (2 * PAGE * ROW_BYTES);
    state.attend<PAGE / 16>(from, from + PAGE * ROW_BYTES, block * PAGE, visible, (block + 1) * PAGE > position);
    __syncthreads();
  }
  state.finish();
#pragma unroll
  for (int half = 0; half < 2; half++)
    if (outs[half]) {
      float inverse = 1.f / state.sum[half];
#pragma unroll
      for (int i = 0; i < STEPS * 2; i++)
        *(u32*)(outs[half] + i * 8 + (lane % 4) * 2) =
            pack(state.out[i][half * 2] * inverse, state.out[i][half * 2 + 1] * inverse);
    }
}

// ---- sampling ----

#if FLOAT_LOGITS
typedef float Logit;
__device__ __forceinline__ float logit(Logit x) { return x; }
#else
typedef u16 Logit;
__device__ __forceinline__ float logit(Logit x) { return wide(x); }
#endif

// What a chunk of CHUNK logits amounts to.
struct Part {
  float top;
  float sum;
  int best;
  int unused;
};

// Eight logits of a chunk for each of 256 threads, divided by the temperature; minus infinity after the last one.
__device__ __forceinline__ void chunk_logits(float (&values)[8], const Logit* logits, int chunk, float factor) {
  int at = chunk * CHUNK + threadIdx.x * 8;
  __align__(16) Logit raw[8];
  if (VOCABULARY % 8 == 0 && at < VOCABULARY) {
#pragma unroll
    for (int i = 0; i < (int)sizeof(raw) / 16; i++) ((uint4*)raw)[i] = ((const uint4*)(logits + at))[i];
  } else {
#pragma unroll
    for (int i = 0; i < 8; i++) raw[i] = at + i < VOCABULARY ? logits[at + i] : (Logit)0;
  }
#pragma unroll
  for (int i = 0; i < 8; i++) values[i] = at + i < VOCABULARY ? logit(raw[i]) * factor : negative_infinity();
}

// Maximum, sum of exponentials and likeliest token of every chunk. 256 threads.
extern "C" __global__ void sample_parts(const Row* rows, const Logit* logits, Part* parts) {
  __shared__ float tops[8];
  __shared__ float shared[32];
  __shared__ int bests[8];
  int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  if (rows[blockIdx.y].slot < 0) return;
  float values[8];
  chunk_logits(values, logits + (i64)blockIdx.y * VOCABULARY, blockIdx.x, (float)rows[blockIdx.y].inverse_temperature);
  float top = negative_infinity();
  int best = 0x7fffffff;
#pragma unroll
  for (int i = 0; i < 8; i++)
    if (values[i] > top) {
      top = values[i];
      best = blockIdx.x * CHUNK + threadIdx.x * 8 + i;
    }
#pragma unroll
  for (int step = 16; step > 0; step >>= 1) {
    float other = __shfl_xor_sync(FULL, top, step);
    int index = __shfl_xor_sync(FULL, best, step);
    if (other > top || (other == top && index < best)) {
      top = other;
      best = index;
    }
  }
  if (lane == 0) {
    tops[warp] = top;
    bests[warp] = best;
  }
  __syncthreads();
  top = tops[0];
  best = bests[0];
#pragma unroll
  for (int i = 1; i < 8; i++)
    if (tops[i] > top) {
      top = tops[i];
      best = bests[i];
    }
  float sum = 0.f;
  // Where nothing is above minus infinity, the differences are not numbers, which is meant only if a logit is not.
  float base = top == negative_infinity() ? 0.f : top;
#pragma unroll
  for (int i = 0; i < 8; i++) sum += __expf(values[i] - base);
  sum = block_sum(sum, shared);
  if (threadIdx.x == 0) {
    Part part = {top, sum, best, 0};
    parts[(i64)blockIdx.y * gridDim.x + blockIdx.x] = part;
  }
}

__device__ __forceinline__ double warp_scan(double x) {
  int lane = threadIdx.x % 32;
#pragma unroll
  for (int step = 1; step < 32; step <<= 1) {
    double other = __shfl_up_sync(FULL, x, step);
    if (lane >= step) x += other;
  }
  return x;
}

// The token of every row, by inverse transform sampling, and its log-probability: [2][rows]. 256 threads per row.
extern "C" __global__ void sample_token(const Row* rows, const Logit* logits, const Part* parts, int chunks,
                                        double* out) {
  __shared__ double target, before, total, warps[8];
  __shared__ float top_of_all;
  __shared__ int chosen, token;
  int index = blockIdx.x, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  Row row = rows[index];
  if (row.slot < 0) return;
  parts += (i64)index * chunks;
  logits += (i64)index * VOCABULARY;
  float factor = (float)row.inverse_temperature;
  if (warp == 0) {
    float top = negative_infinity();
    int best = 0x7fffffff;
    for (int i = lane; i < chunks; i += 32)
      if (parts[i].top > top) {
        top = parts[i].top;
        best = parts[i].best;
      }
#pragma unroll
    for (int step = 16; step > 0; step >>= 1) {
      float other = __shfl_xor_sync(FULL, top, step);
      int place = __shfl_xor_sync(FULL, best, step);
      if (other > top || (other == top && place < best)) {
        top = other;
        best = place;
      }
    }
    double sum = 0.0;
    auto weight = [&](int i) -> double {
      if (i >= chunks) return 0.0;
      Part part = parts[i];
      // A chunk of minus infinities weighs nothing, one with something that is not a number is not one.
      return part.top == negative_infinity() ? (part.sum == 0.f ? 0.0 : (double)part.sum)
                                             : (double)part.sum * (double)expf(part.top - top);
    };
    for (int i = lane; i < chunks; i += 32) sum += weight(i);
#pragma unroll
    for (int step = 16; step > 0; step >>= 1) sum += __shfl_xor_sync(FULL, sum, step);
    double wanted = sum * row.uniform, passed = 0.0, base = 0.0;
    int found = -1;
    for (int i = 0; i < chunks; i += 32) {
      double own = weight(i + lane), upto = passed + warp_scan(own);
      u32 above = __ballot_sync(FULL, upto > wanted);
      if (above) {
        int winner = __ffs(above) - 1;
        found = i + winner;
        base = __shfl_sync(FULL, upto - own, winner);
        break;
      }
      passed = __shfl_sync(FULL, upto, 31);
    }
    if (lane == 0) {
      target = wanted;
      before = base;
      total = sum;
      top_of_all = top;
      chosen = found;
      // Where rounding leaves no chunk, the likeliest token of all.
      token = row.greedy > 0.5 || found < 0 ? best : -1;
    }
  }
  __syncthreads();
  // The same for all threads: none writes before all have read it.
  if (token < 0) {
    float values[8];
    chunk_logits(values, logits, chosen, factor);
    double mine = 0.0, shares[8];
#pragma unroll
    for (int i = 0; i < 8; i++) {
      shares[i] = (double)__expf(values[i] - top_of_all);
      mine += shares[i];
    }
    double upto = warp_scan(mine);
    if (lane == 31) warps[warp] = upto;
    __syncthreads();
    double passed = before;
    for (int i = 0; i < warp; i++) passed += warps[i];
    upto += passed;
    if (upto > target && upto - mine <= target) {
      double sum = upto - mine;
      int found = -1;
#pragma unroll
      for (int i = 7; i >= 0; i--) {
        double below = sum;
#pragma unroll
        for (int j = 0; j <= i; j++) below += shares[j];
        if (below > target) found = chosen * CHUNK + threadIdx.x * 8 + i;
      }
      atomicMax(&token, found);
    }
    __syncthreads();
  }
  if (threadIdx.x == 0) {
    // The sums of both kernels are rounded differently. A target that falls between two tokens or behind the last one
    // means the likeliest token of the chunk: the next or last one may be all but impossible.
    int drawn = token < 0 ? parts[chosen].best : token;
    if (drawn == 0x7fffffff) drawn = 0;
    out[index] = (double)drawn;
    out[gridDim.x + index] = (double)(logit(logits[drawn]) * factor - top_of_all) - log(total);
  }
}

// ---- adapters ----

// Weights with an adapter merged: base + scale * b a, for `columns` inputs; one row of outputs per blockIdx.y. Rounded to
// bf16 up or down in proportion to the distance, by a fixed dither: to nearest, changes of less than half a unit in the
// last place, such as those of the first training steps, would all be lost.
extern "C" __global__ void merge(const u16* base, const u16* a, const u16* b, u16* out, int rank, int columns,
                                 float scale) {
  int at = (blockIdx.x * blockDim.x + threadIdx.x) * 8;
  if (at >= columns) return;
  i64 row = blockIdx.y;
  float sums[8] = {0.f, 0.f, 0.f, 0.f, 0.f, 0.f, 0.f, 0.f};
  for (int r = 0; r < rank; r++) {
    float factor = wide(b[row * rank + r]);
    uint4 v = *(const uint4*)(a + (i64)r * columns + at);
    u32 parts[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
    for (int i = 0; i < 4; i++) {
      sums[i * 2] += factor * low(parts[i]);
      sums[i * 2 + 1] += factor * high(parts[i]);
    }
  }
  uint4 v = *(const uint4*)(base + row * columns + at);
  u32 parts[4] = {v.x, v.y, v.z, v.w}, outs[4];
#pragma unroll
  for (int i = 0; i < 4; i++) {
    u32 both[2];
#pragma unroll
    for (int j = 0; j < 2; j++) {
      float sum = (j ? high(parts[i]) : low(parts[i])) + scale * sums[i * 2 + j];
      u32 bits = __float_as_uint(sum);
      u32 noise = (u32)(row * columns + at + i * 2 + j) * 0x9e3779b9u;
      noise ^= noise >> 16;
      noise *= 0x85ebca6bu;
      noise ^= noise >> 13;
      noise *= 0xc2b2ae35u;
      if ((bits & 0x7f800000u) != 0x7f800000u) bits += noise >> 16;
      both[j] = bits >> 16;
    }
    outs[i] = both[0] | (both[1] << 16);
  }
  uint4 o = {outs[0], outs[1], outs[2], outs[3]};
  *(uint4*)(out + row * columns + at) = o;
}
