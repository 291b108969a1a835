#include "registry.hpp"

int triton_load() { return 1; }
int triton_store() { return 2; }
int triton_dot() { return 3; }
int triton_exp() { return 4; }
int triton_sum() { return 5; }
int triton_amax() { return 6; }

#ifndef COMPOSED
namespace {
registration load("triton", op::load, triton_load);
registration store("triton", op::store, triton_store);
registration dot("triton", op::dot, triton_dot);
registration exp("triton", op::exp, triton_exp);
registration sum("triton", op::sum, triton_sum);
registration amax("triton", op::amax, triton_amax);
} // namespace
#endif
