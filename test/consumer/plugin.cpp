#include <cstdint>
import muster.error;
import muster.registry;

enum class op : std::uint16_t { load, dot };
using handler = int();

int load_plugin();
int load_plugin() { return 7; }

constexpr muster::operation_set<op> operations{{{op::load, "load"}, {op::dot, "dot"}}};
constexpr muster::backend<op, handler> plugin{.name = "plugin", .handlers = {{op::load, load_plugin}}};
constexpr auto registry = muster::compose<operations, plugin>();

/// The handler's result, or an exception that crosses the boundary of the shared object.
extern "C" __attribute__((visibility("default"))) int call(const char* operation) { return registry.at("plugin", operation)(); }
