module;
#include <cstdint>
#include <stdexcept>
#include <string>
module hazard.left;
import muster.registry;
import hazard.operations;
import hazard.registry;

int left_even(unsigned n) { return n == 0 ? 1 : hazard::registry.at("right", hazard::op::odd)(n - 1); }
int left_fail(unsigned n) {
  if (n == 0) throw std::runtime_error("left");
  return hazard::registry.at("right", hazard::op::fail)(n - 1);
}
