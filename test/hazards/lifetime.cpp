// Lookups and code generation at the odd times of a program's life. Arguments name what to do.
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>
#include <thread>
#include <vector>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>
#include "programs.hpp"
import muster;

extern const char* dump_before_everything;
extern const char* dump_before_main;

namespace {

std::string* expected = nullptr; // never destroyed: atexit still reads it

void report(const char* when, bool good) {
  const std::string line = std::string(when) + (good ? ": same\n" : ": DIFFERENT\n");
  (void)!write(1, line.data(), line.size());
}

/// Every cell, by ids and by names; how many are filled.
unsigned filled_cells() {
  constexpr auto registry = muster::builtin_registry();
  unsigned filled = 0;
  for (const auto& backend : registry.backends())
    for (const auto& operation : registry.operations()) {
      filled += registry.find(backend.name, operation.id) != nullptr ? 1 : 0;
      filled += registry.find(backend.name, operation.name) != nullptr ? 1 : 0;
    }
  return filled;
}

volatile std::sig_atomic_t signals = 0;
volatile std::sig_atomic_t wrong_in_signal = 0;
unsigned filled_in_main = 0;

void on_signal(int) {
  signals = signals + 1;
  if (filled_cells() != filled_in_main) wrong_in_signal = 1;
}

void interrupt_generation() {
  filled_in_main = filled_cells();
  std::signal(SIGALRM, on_signal);
  itimerval every{};
  every.it_interval.tv_usec = every.it_value.tv_usec = 300;
  setitimer(ITIMER_REAL, &every, nullptr);
  bool good = true;
  while (signals < 200) good = dump() == *expected && good;
  setitimer(ITIMER_REAL, nullptr, nullptr);
  report("signal handler", wrong_in_signal == 0);
  report("what a signal interrupted", good);
}

int status_of_child() {
  const pid_t child = fork();
  if (child == 0) _exit(dump() == *expected ? 0 : 1);
  int status = -1;
  waitpid(child, &status, 0);
  return status;
}

void fork_children() {
  report("forked child", status_of_child() == 0);
  std::vector<std::jthread> threads;
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([](const std::stop_token& stop) {
      while (!stop.stop_requested()) (void)dump();
    });
  bool good = true;
  for (int i = 0; i < 5; ++i) good = status_of_child() == 0 && good;
  report("child forked amid other threads' generation", good);
}

} // namespace

int main() {
  (void)std::atexit([] { report("atexit, from main", dump() == *expected); });
  expected = new std::string(dump());
  report("initialiser of the first object", dump_before_everything != nullptr && *expected == dump_before_everything);
  report("initialiser of another translation unit", dump_before_main != nullptr && *expected == dump_before_main);
  interrupt_generation();
  fork_children();
}
