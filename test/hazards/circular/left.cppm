module;
#include <cstdint>
export module hazard.left;
import muster.registry;
import hazard.operations;

int left_even(unsigned n);
int left_fail(unsigned n);

export constexpr muster::handler_row<hazard::op, hazard::handler> left_rows[] = {{hazard::op::even, left_even},
                                                                                 {hazard::op::fail, left_fail}};
export constexpr muster::backend<hazard::op, hazard::handler> left{.name = "left", .parts = left_rows};
