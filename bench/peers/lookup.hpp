#pragma once
#include <vector>
#include "../measure.hpp"

/// The lookups in a registry of so many names and backends, and in what else one could write: instantiated once for each size.
template <int Names, int Backends> void add_lookups(std::vector<bench::subject>& all);
