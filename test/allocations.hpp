#pragma once
#include <cstddef>

/// How many times this thread has called a global `operator new` so far: the test program replaces them all.
std::size_t allocations_of_this_thread() noexcept;
