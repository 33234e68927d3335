// Causal attention over packed sequences (varlen flash attention), which tch does not offer. Part of the library of
// graph.cpp; the same rules hold. Needs compute capability 8.0.

#include <ATen/ops/_flash_attention_forward.h>

#include <exception>
#include <tuple>
#include <utility>

extern "C" {

void lis_fail(const char* why);

// Queries [tokens, heads, head_dim]; keys and values [keys, kv_heads, head_dim], where kv_heads divides heads.
// query_ends and key_ends: [sequences + 1], 32-bit integers on the device, where each sequence begins and the last ends.
// A query attends to the keys of its sequence up to its own position, counted from the end: the last query sees all
// keys. The result is a new tensor with its gradient graph, which the caller frees; null where it fails.
void* lis_attention_packed(const void* queries, const void* keys, const void* values, const void* query_ends,
                           const void* key_ends, long long longest_queries, long long longest_keys) {
  auto tensor = [](const void* pointer) -> const at::Tensor& { return *static_cast<const at::Tensor*>(pointer); };
  try {
    auto found = at::_flash_attention_forward(tensor(queries), tensor(keys), tensor(values), tensor(query_ends),
                                              tensor(key_ends), longest_queries, longest_keys, /*dropout_p=*/0.0,
                                              /*is_causal=*/true, /*return_debug_mask=*/false);
    return new at::Tensor(std::get<0>(std::move(found)));
  } catch (const std::exception& thrown) {
    lis_fail(thrown.what());
  } catch (...) {
    lis_fail("unknown exception");
  }
  return nullptr;
}

}  // extern "C"
