#include "registry.hpp"

extern "C" __attribute__((visibility("default"))) int right_handlers() { return take_census().right; }
