module;
#include <cstdint>
#include <stdexcept>
#include <string>
module hazard.right;
import muster.registry;
import hazard.operations;
import hazard.registry;

int right_odd(unsigned n) { return n == 0 ? 0 : hazard::registry.at("left", "even")(n - 1); }
int right_fail(unsigned n) {
  if (n == 0) throw std::runtime_error("right");
  return hazard::registry.at("left", "fail")(n - 1);
}
