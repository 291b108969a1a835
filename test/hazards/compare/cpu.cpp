#include "registry.hpp"

int cpu_load() { return 7; }
int cpu_store() { return 8; }
int cpu_dot() { return 9; }
int cpu_exp() { return 10; }
int cpu_sum() { return 11; }
int cpu_amax() { return 12; }

#ifndef COMPOSED
namespace {
registration load("cpu", op::load, cpu_load);
registration store("cpu", op::store, cpu_store);
registration dot("cpu", op::dot, cpu_dot);
registration exp("cpu", op::exp, cpu_exp);
registration sum("cpu", op::sum, cpu_sum);
registration amax("cpu", op::amax, cpu_amax);
} // namespace
#endif
