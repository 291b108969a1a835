// 64 threads make the very first lookups and code generations of a process at once. Lookups are watched: they allocate nothing and
// lock nothing.
#include <atomic>
#include <barrier>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <new>
#include <string>
#include <string_view>
#include <thread>
#include <vector>
#include <dlfcn.h>
#include <pthread.h>
#include "programs.hpp"
import muster;

namespace {
thread_local unsigned long events = 0; // allocations and locks of this thread
} // namespace

#ifndef UNDER_TSAN // which has its own
void* operator new(std::size_t size) {
  ++events;
  if (void* const p = std::malloc(size)) return p;
  throw std::bad_alloc();
}
void operator delete(void* p) noexcept { std::free(p); }
void operator delete(void* p, std::size_t) noexcept { std::free(p); }
extern "C" int pthread_mutex_lock(pthread_mutex_t* mutex) noexcept {
  static constinit std::atomic<int (*)(pthread_mutex_t*)> real{nullptr};
  ++events;
  if (real.load() == nullptr) real = reinterpret_cast<int (*)(pthread_mutex_t*)>(dlsym(RTLD_NEXT, "pthread_mutex_lock"));
  return real.load()(mutex);
}
#endif

namespace {

struct findings {
  unsigned filled = 0;
  unsigned long events = 0;
  std::string dump;
};

void look_up(findings& f) {
  constexpr auto registry = muster::builtin_registry();
  const unsigned long before = events;
  for (const auto& backend : registry.backends())
    for (const auto& operation : registry.operations()) {
      f.filled += registry.find(backend.name, operation.name) != nullptr ? 1 : 0;
      f.filled += registry.find(registry.backend_named(backend.name), operation.id) != nullptr ? 1 : 0;
      f.filled += registry.cell(backend.name, operation.id).provenance != muster::provenance::missing ? 1 : 0;
    }
  f.events = events - before;
}

} // namespace

int main() {
  constexpr std::size_t count = 64;
  std::vector<findings> all(count);
  std::barrier start(count);
  {
    std::vector<std::jthread> threads;
    for (findings& f : all)
      threads.emplace_back([&f, &start] {
        start.arrive_and_wait();
        look_up(f);
        f.dump = dump();
      });
  }
  for (const findings& f : all) {
    if (f.filled != all[0].filled || f.filled == 0) return std::puts("a thread found other handlers"), 1;
    if (f.dump != all[0].dump) return std::puts("a thread generated another text"), 1;
    if (f.events != 0) return std::printf("%lu allocations or locks in lookups\n", f.events), 1;
  }
  std::fputs(all[0].dump.c_str(), stdout);
}
