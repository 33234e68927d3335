// No exception leaves the library: what fails is stored for lis_error.

#pragma once

#include <exception>

// Stores why a function of the library failed.
extern "C" void lis_fail(const char* why);

// Runs work that may throw; 0 where it does not.
template <typename Work>
int guarded(Work work) {
  try {
    work();
    return 0;
  } catch (const std::exception& thrown) {
    lis_fail(thrown.what());
  } catch (...) {
    lis_fail("unknown exception");
  }
  return 1;
}
