#pragma once
#include <cstdint>
#include <string_view>

// Twelve handlers, and a lookup: behind it either a registry of muster's (COMPOSED) or the usual kind, into which each handler puts
// itself before main.

enum class op : std::uint16_t {
  load,
#ifdef NEWER_VERSION
  prefetch,
#endif
  store,
  dot,
  exp,
  sum,
  amax
};
using handler = int();

#ifdef COMPOSED
import muster.registry;

inline constexpr muster::operation_set<op> operations{{{op::load, "load"},
#ifdef NEWER_VERSION
                                                       {op::prefetch, "prefetch"},
#endif
                                                       {op::store, "store"},
                                                       {op::dot, "dot"},
                                                       {op::exp, "exp"},
                                                       {op::sum, "sum"},
                                                       {op::amax, "amax"}}};

template <std::uint64_t Fingerprint> struct library_has_other_operations {
  static handler* find(std::string_view backend, op o);
};
extern template struct library_has_other_operations<muster::fingerprint(operations)>;
inline handler* find(std::string_view backend, op o) {
  return library_has_other_operations<muster::fingerprint(operations)>::find(backend, o);
}
#else
handler* find(std::string_view backend, op o);

struct registration {
  registration(const char* backend, op o, handler* h);
};
#endif

int triton_load();
int triton_store();
int triton_dot();
int triton_exp();
int triton_sum();
int triton_amax();
int cpu_load();
int cpu_store();
int cpu_dot();
int cpu_exp();
int cpu_sum();
int cpu_amax();

/// What a program asks: are the twelve handlers there, and are they the right ones?
struct census {
  int right = 0;
  int wrong = 0;
};
inline census take_census() {
  constexpr op all[] = {op::load, op::store, op::dot, op::exp, op::sum, op::amax};
  census c;
  int expected = 0;
  for (const char* backend : {"triton", "cpu"})
    for (const op o : all) {
      ++expected;
      if (handler* const found = find(backend, o)) ++(found() == expected ? c.right : c.wrong);
    }
  return c;
}
