// Recording the kernels of a step once and replaying them with one call: a C interface to at::cuda::CUDAGraph, which
// tch does not offer. Loaded at run time, and only where libtorch's CUDA part is there; nothing is linked here.
//
// Every function but the last two returns 0 (or a pointer) where it succeeds; otherwise lis_error says why. No
// exception leaves this file.

#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAStream.h>

#include <exception>
#include <memory>
#include <string>

namespace {

thread_local std::string error;

template <typename Work>
int guarded(Work work) {
  try {
    work();
    return 0;
  } catch (const std::exception& thrown) {
    error = thrown.what();
  } catch (...) {
    error = "an exception of no known kind";
  }
  return 1;
}

// All graphs of a thread are replayed one after another and keep nothing between replays, so that they can share the
// memory of what they compute on the way.
c10::MempoolId_t shared_pool() {
  static thread_local c10::MempoolId_t pool = at::cuda::graph_pool_handle();
  return pool;
}

}  // namespace

extern "C" {

// Kernels of this thread go to a stream of its own from now on: the default stream cannot be recorded.
int lis_stream_own(int device) {
  return guarded([&] {
    auto index = static_cast<c10::DeviceIndex>(device);
    c10::cuda::set_device(index);
    c10::cuda::setCurrentCUDAStream(c10::cuda::getStreamFromPool(/*isHighPriority=*/true, index));
  });
}

// Waits for the kernels of this thread's stream.
int lis_stream_wait(void) {
  return guarded([] { c10::cuda::getCurrentCUDAStream().synchronize(); });
}

// Begins to record what this thread launches. Other threads may go on using the device.
void* lis_graph_begin(void) {
  void* begun = nullptr;
  guarded([&] {
    auto graph = std::make_unique<at::cuda::CUDAGraph>();
    graph->capture_begin(shared_pool(), cudaStreamCaptureModeThreadLocal);
    begun = graph.release();
  });
  return begun;
}

int lis_graph_end(void* graph) {
  return guarded([&] { static_cast<at::cuda::CUDAGraph*>(graph)->capture_end(); });
}

int lis_graph_replay(void* graph) {
  return guarded([&] { static_cast<at::cuda::CUDAGraph*>(graph)->replay(); });
}

// Bytes that can still be had: what the device has left, and what libtorch holds without using it.
int lis_memory_free(int device, unsigned long long* bytes) {
  return guarded([&] {
    auto index = static_cast<c10::DeviceIndex>(device);
    c10::cuda::set_device(index);
    size_t left = 0;
    size_t total = 0;
    C10_CUDA_CHECK(cudaMemGetInfo(&left, &total));
    auto stats = c10::cuda::CUDACachingAllocator::getDeviceStats(index);
    constexpr auto all = static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE);
    auto held = stats.reserved_bytes[all].current - stats.allocated_bytes[all].current;
    *bytes = left + static_cast<unsigned long long>(held > 0 ? held : 0);
  });
}

void lis_graph_free(void* graph) {
  guarded([&] { delete static_cast<at::cuda::CUDAGraph*>(graph); });
}

// Why the last call of this thread failed. The text stays until the next failure of this thread.
const char* lis_error(void) { return error.c_str(); }

}  // extern "C"
