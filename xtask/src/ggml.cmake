# Read by CMake at the start of the project `ggml`, whose kernels compute all that a model says.
set(CMAKE_CXX_FLAGS_RELEASE "-O3 -DNDEBUG")
