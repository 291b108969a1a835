#include <cstdio>
#include "registry.hpp"

int main() {
  const census c = take_census();
  std::printf("main %d %d\n", c.right, c.wrong);
}
