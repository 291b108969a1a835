module;
#include <cstdint>
export module hazard.right;
import muster.registry;
import hazard.operations;

int right_odd(unsigned n);
int right_fail(unsigned n);

export constexpr muster::handler_row<hazard::op, hazard::handler> right_rows[] = {{hazard::op::odd, right_odd},
                                                                                  {hazard::op::fail, right_fail}};
export constexpr muster::backend<hazard::op, hazard::handler> right{.name = "right", .parts = right_rows};
