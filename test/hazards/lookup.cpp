// A consumer's own library that mentions a lookup by names and nothing else. run.py looks at its object too: a lookup needs no
// lock, no guard, no allocation.
#include <string_view>
import muster.registry;
import muster.operations;
import muster.codegen;
import muster.builtin;

bool has(const char* backend, const char* operation);
bool has(const char* backend, const char* operation) {
  return muster::builtin_registry().find(std::string_view(backend), std::string_view(operation)) != nullptr;
}

bool has_by_id(unsigned backend, unsigned operation);
bool has_by_id(unsigned backend, unsigned operation) {
  return muster::builtin_registry().find(static_cast<muster::backend_id>(backend), static_cast<muster::operation>(operation)) != nullptr;
}
