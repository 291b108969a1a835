#include "registry.hpp"

namespace {

constexpr muster::backend<op, handler> triton{.name = "triton",
                                              .handlers = {{op::load, triton_load},
                                                           {op::store, triton_store},
                                                           {op::dot, triton_dot},
                                                           {op::exp, triton_exp},
                                                           {op::sum, triton_sum},
                                                           {op::amax, triton_amax}}};
constexpr muster::backend<op, handler> cpu{
    .name = "cpu",
    .handlers = {
        {op::load, cpu_load}, {op::store, cpu_store}, {op::dot, cpu_dot}, {op::exp, cpu_exp}, {op::sum, cpu_sum}, {op::amax, cpu_amax}}};
constexpr auto registry = muster::compose<operations, triton, cpu>();

} // namespace

template <std::uint64_t Fingerprint> handler* library_has_other_operations<Fingerprint>::find(std::string_view backend, op o) {
  return registry.find(backend, o);
}
template struct library_has_other_operations<muster::fingerprint(operations)>;
