module;
#include <cstdint>
/// Imports both backends, whose implementations import it.
export module hazard.registry;
import muster.registry;
import hazard.operations;
import hazard.left;
import hazard.right;

export namespace hazard {
constexpr auto registry = muster::compose<operations, left, right>();
}
