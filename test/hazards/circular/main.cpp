// Two backends whose handlers call each other's through the registry, and throw through it.
#include <cstdint>
#include <cstdio>
#include <stdexcept>
#include <string>
#include <string_view>
import muster.registry;
import hazard.operations;
import hazard.registry;

namespace {

const int early = hazard::registry.at("left", hazard::op::even)(10); // before main

/// Who throws at the bottom of `n` calls.
std::string thrower(std::string_view backend, unsigned n) {
  try {
    hazard::registry.at(backend, hazard::op::fail)(n);
  } catch (const std::runtime_error& error) {
    return error.what();
  }
  return "nobody";
}

bool works() {
  const auto& r = hazard::registry;
  if (early != 1) return false;
  if (r.at("left", hazard::op::even)(1000) != 1 || r.at("left", hazard::op::even)(1001) != 0) return false;
  if (r.at("right", hazard::op::odd)(1001) != 1 || r.at("right", hazard::op::odd)(1000) != 0) return false;
  try {
    (void)r.at("left", hazard::op::odd); // the other one's only
    return false;
  } catch (const muster::BackendImplementationMissing& missing) {
    return missing.implemented_by().size() == 1 && missing.implemented_by().front() == "right";
  }
}

} // namespace

int main() {
  bool good = works();
  for (int i = 0; i < 3; ++i) {
    good = good && thrower("left", 7) == "right" && thrower("right", 6) == "right" && thrower("left", 8) == "left";
    good = good && works();
  }
  std::puts(good ? "works" : "does not work");
  return good ? 0 : 1;
}
