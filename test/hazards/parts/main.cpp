#include <cstdio>
#include "parts.hpp"

int main() {
  const std::uint64_t expected = 12345670;
  const bool good = read_all() == expected && read_from_memory() == expected && read_from_reductions() == expected;
  const bool one = table_seen_from_memory() == registry.backends().data();
  std::puts(good && one ? "works" : "does not work");
  return good && one ? 0 : 1;
}
