// Asks before main and after it.
#include <cstdio>
#include "registry.hpp"

namespace {

void say(const char* when) {
  const census c = take_census();
  std::printf("%s %d %d\n", when, c.right, c.wrong);
  std::fflush(stdout);
}

struct asks {
#ifndef ONLY_AFTER
  asks() { say("before"); }
#endif
  ~asks() { say("after"); }
};
asks object;

} // namespace
