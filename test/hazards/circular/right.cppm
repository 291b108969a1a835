module;
#include <cstdint>
export module hazard.right;
import muster.registry;
import hazard.operations;

int right_odd(unsigned n);
int right_fail(unsigned n);

export constexpr muster::backend<hazard::op, hazard::handler> right{
    .name = "right", .handlers = {{hazard::op::odd, right_odd}, {hazard::op::fail, right_fail}}};
