#include <vector>
#include "lookup.hpp"

int main(int argc, char** argv) {
  std::vector<bench::subject> all;
  add_lookups<100, 6>(all);
  add_lookups<300, 6>(all);
  add_lookups<1000, 6>(all);
  add_lookups<100, 32>(all);
  add_lookups<300, 32>(all);
  add_lookups<1000, 32>(all);
  return bench::measure(all, argc, argv);
}
