// What tch does not offer, as a C interface: recording the kernels of a step once and replaying them with one call
// (at::cuda::CUDAGraph), and compiling kernels at run time (NVRTC, which comes with libtorch). Loaded at run time, and
// only where libtorch's CUDA part is there; nothing is linked here.
//
// Every function but those that free and the last two returns 0 (or a pointer) on success; otherwise lis_error says why.
// No exception leaves this file. Functions that take a device leave the thread's current device as it was, except
// lis_stream_own.

#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAStream.h>

#include <cuda.h>
#include <dlfcn.h>

#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "guarded.h"

namespace {

thread_local std::string error;

// Makes a device the current one for a while.
class OnDevice {
 public:
  explicit OnDevice(int device) : before_(c10::cuda::current_device()), device_(static_cast<c10::DeviceIndex>(device)) {
    if (device_ != before_) c10::cuda::set_device(device_);
  }

  ~OnDevice() {
    // There is no way to report a failure here; the next call with a device fails as well.
    if (device_ != before_) static_cast<void>(cudaSetDevice(before_));
  }

  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;

  c10::DeviceIndex index() const { return device_; }

 private:
  c10::DeviceIndex before_;
  c10::DeviceIndex device_;
};

// All graphs of a thread are replayed one after another and keep nothing between replays, so that they can share the
// memory of what they compute on the way.
c10::MempoolId_t shared_pool() {
  static thread_local c10::MempoolId_t pool = at::cuda::graph_pool_handle();
  return pool;
}

// The functions of a shared library, looked up by name.
class Library {
 public:
  explicit Library(const char* name) : handle_(dlopen(name, RTLD_LAZY | RTLD_LOCAL)) {
    if (handle_ == nullptr) throw std::runtime_error(dlerror());
  }

  template <typename Function>
  Function* find(const char* name) const {
    void* found = dlsym(handle_, name);
    if (found == nullptr) throw std::runtime_error(std::string("cannot find the function ") + name);
    return reinterpret_cast<Function*>(found);
  }

 private:
  void* handle_;
};

// The part of NVRTC that is used. Its header is not always installed with the others.
struct Compiler {
  using Program = void*;
  // Libtorch's stub is linked with the NVRTC it was built for, which is found through it.
  Library library{"libcaffe2_nvrtc.so"};
  int (*create)(Program*, const char*, const char*, int, const char* const*, const char* const*) =
      library.find<int(Program*, const char*, const char*, int, const char* const*, const char* const*)>(
          "nvrtcCreateProgram");
  int (*compile)(Program, int, const char* const*) =
      library.find<int(Program, int, const char* const*)>("nvrtcCompileProgram");
  int (*log_size)(Program, size_t*) = library.find<int(Program, size_t*)>("nvrtcGetProgramLogSize");
  int (*log)(Program, char*) = library.find<int(Program, char*)>("nvrtcGetProgramLog");
  int (*size)(Program, size_t*) = library.find<int(Program, size_t*)>("nvrtcGetCUBINSize");
  int (*get)(Program, char*) = library.find<int(Program, char*)>("nvrtcGetCUBIN");
  int (*destroy)(Program*) = library.find<int(Program*)>("nvrtcDestroyProgram");
};

// The part of the driver that is used.
struct Driver {
  Library library{"libcuda.so.1"};
  decltype(cuModuleLoadData)* load = library.find<decltype(cuModuleLoadData)>("cuModuleLoadData");
  decltype(cuModuleUnload)* unload = library.find<decltype(cuModuleUnload)>("cuModuleUnload");
  decltype(cuModuleGetFunction)* find = library.find<decltype(cuModuleGetFunction)>("cuModuleGetFunction");
  decltype(cuFuncSetAttribute)* set = library.find<decltype(cuFuncSetAttribute)>("cuFuncSetAttribute");
  decltype(cuLaunchKernel)* launch = library.find<decltype(cuLaunchKernel)>("cuLaunchKernel");
};

const Driver& driver() {
  static const Driver loaded;
  return loaded;
}

void check(int status, const std::string& what) {
  if (status != 0) throw std::runtime_error("cannot " + what + ": error " + std::to_string(status));
}

// The machine code of a source text for the device.
std::vector<char> compiled(int device, const char* source, const char* const* options, int count) {
  static const Compiler compiler;
  int major = 0;
  int minor = 0;
  C10_CUDA_CHECK(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device));
  C10_CUDA_CHECK(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device));
  std::string target = "--gpu-architecture=sm_" + std::to_string(major * 10 + minor);
  std::vector<const char*> all(options, options + count);
  all.push_back(target.c_str());
  all.push_back("--std=c++17");
  Compiler::Program program = nullptr;
  check(compiler.create(&program, source, "kernels.cu", 0, nullptr, nullptr), "create the program of the kernels");
  std::unique_ptr<Compiler::Program, int (*)(Compiler::Program*)> guard(&program, compiler.destroy);
  if (compiler.compile(program, static_cast<int>(all.size()), all.data()) != 0) {
    size_t size = 0;
    check(compiler.log_size(program, &size), "read the messages of the compiler");
    std::string log(size, ' ');
    check(compiler.log(program, log.data()), "read the messages of the compiler");
    throw std::runtime_error("cannot compile the kernels: " + log);
  }
  size_t size = 0;
  check(compiler.size(program, &size), "read the compiled kernels");
  std::vector<char> code(size);
  check(compiler.get(program, code.data()), "read the compiled kernels");
  return code;
}

}  // namespace

extern "C" {

// Compiles kernels for a device and loads them.
void* lis_module_compile(int device, const char* source, const char* const* options, int count) {
  void* loaded = nullptr;
  guarded([&] {
    OnDevice current(device);
    // Creates the device's context where there is none.
    C10_CUDA_CHECK(cudaFree(nullptr));
    auto code = compiled(device, source, options, count);
    CUmodule module = nullptr;
    check(driver().load(&module, code.data()), "load the kernels");
    loaded = module;
  });
  return loaded;
}

void lis_module_free(int device, void* module) {
  guarded([&] {
    OnDevice current(device);
    driver().unload(static_cast<CUmodule>(module));
  });
}

// A kernel by its name, allowed this much dynamic shared memory.
void* lis_kernel_find(int device, void* module, const char* name, int shared) {
  void* found = nullptr;
  guarded([&] {
    OnDevice current(device);
    CUfunction function = nullptr;
    check(driver().find(&function, static_cast<CUmodule>(module), name), std::string("find the kernel ") + name);
    check(driver().set(function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, shared),
          "reserve " + std::to_string(shared) + " bytes of shared memory for the kernel " + name);
    found = function;
  });
  return found;
}

// Launches a kernel on this thread's stream of the kernel's device.
int lis_kernel_launch(int device, void* kernel, const unsigned* grid, unsigned threads, unsigned shared,
                      void** arguments) {
  return guarded([&] {
    OnDevice current(device);
    auto stream = c10::cuda::getCurrentCUDAStream(current.index()).stream();
    check(driver().launch(static_cast<CUfunction>(kernel), grid[0], grid[1], grid[2], threads, 1, 1, shared, stream,
                          arguments, nullptr),
          "launch a kernel");
  });
}

// The compute capability of a device.
int lis_device_capability(int device, int* major, int* minor) {
  return guarded([&] {
    C10_CUDA_CHECK(cudaDeviceGetAttribute(major, cudaDevAttrComputeCapabilityMajor, device));
    C10_CUDA_CHECK(cudaDeviceGetAttribute(minor, cudaDevAttrComputeCapabilityMinor, device));
  });
}

// Makes the device the thread's current one, and a new stream its stream there: the default stream cannot be recorded.
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

// Begins to record what this thread launches. Other threads may use the device meanwhile.
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

// Bytes that can be allocated: what the device has left, and what libtorch holds without using it.
int lis_memory_free(int device, unsigned long long* bytes) {
  return guarded([&] {
    OnDevice current(device);
    size_t left = 0;
    size_t total = 0;
    C10_CUDA_CHECK(cudaMemGetInfo(&left, &total));
    auto stats = c10::cuda::CUDACachingAllocator::getDeviceStats(current.index());
    constexpr auto all = static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE);
    auto held = stats.reserved_bytes[all].current - stats.allocated_bytes[all].current;
    *bytes = left + static_cast<unsigned long long>(held > 0 ? held : 0);
  });
}

void lis_graph_free(void* graph) {
  guarded([&] { delete static_cast<at::cuda::CUDAGraph*>(graph); });
}

void lis_fail(const char* why) { error = why; }

// Why the last call of this thread failed. The text stays until the next failure of this thread.
const char* lis_error(void) { return error.c_str(); }

}  // extern "C"
