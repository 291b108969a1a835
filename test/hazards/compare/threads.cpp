// threads PLUGIN…: 64 threads look up at once; the first of them loads the backends, where they are plugins.
#include <atomic>
#include <barrier>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <thread>
#include <vector>
#include <dlfcn.h>
#include "registry.hpp"

int main(int argc, char** argv) {
  constexpr std::ptrdiff_t count = 64;
  std::atomic<bool> started = false;
  std::atomic<int> complete = 0;
  std::barrier start(count);
  {
    std::vector<std::jthread> threads;
    for (std::ptrdiff_t i = 0; i < count; ++i)
      threads.emplace_back([&] {
        start.arrive_and_wait();
        if (argc > 1 && !started.exchange(true)) {
          std::this_thread::sleep_for(std::chrono::milliseconds(20)); // loading takes its time
          for (int a = 1; a < argc; ++a)
            if (dlopen(argv[a], RTLD_NOW | RTLD_GLOBAL) == nullptr) std::printf("%s\n", dlerror());
        }
        complete += take_census().right == 12 ? 1 : 0;
      });
  }
  std::printf("threads %d\n", complete.load());
}
