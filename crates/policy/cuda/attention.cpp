// Causal attention over packed sequences (varlen flash attention), which tch does not offer. Part of the library of
// graph.cpp; the same rules hold. Needs compute capability 8.0.

#include <ATen/ops/_flash_attention_backward.h>
#include <ATen/ops/_flash_attention_forward.h>

#include <tuple>
#include <utility>

#include "guarded.h"

namespace {

const at::Tensor& tensor(const void* pointer) { return *static_cast<const at::Tensor*>(pointer); }

}  // namespace

extern "C" {

// Queries [tokens, heads, head_dim]; keys and values [keys, kv_heads, head_dim], where kv_heads divides heads.
// query_ends and key_ends: [sequences + 1], 32-bit integers on the device, where each sequence begins and the last ends.
// A query attends to the keys of its sequence up to its own position, counted from the end: the last query sees all
// keys. The result is a new tensor with its gradient graph, which the caller frees; null where it fails.
void* lis_attention_packed(const void* queries, const void* keys, const void* values, const void* query_ends,
                           const void* key_ends, long long longest_queries, long long longest_keys) {
  at::Tensor* attended = nullptr;
  guarded([&] {
    auto found = at::_flash_attention_forward(tensor(queries), tensor(keys), tensor(values), tensor(query_ends),
                                              tensor(key_ends), longest_queries, longest_keys, /*dropout_p=*/0.0,
                                              /*is_causal=*/true, /*return_debug_mask=*/false);
    attended = new at::Tensor(std::get<0>(std::move(found)));
  });
  return attended;
}

// The same without a gradient graph. `found` gets new tensors, which the caller frees: the result, and three that
// lis_attention_backward needs. Returns 0 where it succeeds.
int lis_attention_forward(const void* queries, const void* keys, const void* values, const void* query_ends,
                          const void* key_ends, long long longest_queries, long long longest_keys, void** found) {
  return guarded([&] {
    auto all = at::_flash_attention_forward(tensor(queries), tensor(keys), tensor(values), tensor(query_ends),
                                            tensor(key_ends), longest_queries, longest_keys, /*dropout_p=*/0.0,
                                            /*is_causal=*/true, /*return_debug_mask=*/false);
    found[0] = new at::Tensor(std::get<0>(all));
    found[1] = new at::Tensor(std::get<1>(all));
    found[2] = new at::Tensor(std::get<2>(all));
    found[3] = new at::Tensor(std::get<3>(all));
  });
}

// The gradients by queries, keys and values: three new tensors in `found`, which the caller frees. `forward` are the four
// of lis_attention_forward. Returns 0 where it succeeds.
int lis_attention_backward(const void* by_attended, const void* queries, const void* keys, const void* values,
                           const void* query_ends, const void* key_ends, long long longest_queries,
                           long long longest_keys, const void* const* forward, void** found) {
  return guarded([&] {
    auto all = at::_flash_attention_backward(
        tensor(by_attended), tensor(queries), tensor(keys), tensor(values), tensor(forward[0]), tensor(forward[1]),
        tensor(query_ends), tensor(key_ends), longest_queries, longest_keys, /*dropout_p=*/0.0, /*is_causal=*/true,
        tensor(forward[2]), tensor(forward[3]));
    found[0] = new at::Tensor(std::get<0>(all));
    found[1] = new at::Tensor(std::get<1>(all));
    found[2] = new at::Tensor(std::get<2>(all));
  });
}

}  // extern "C"
