#include "parts.hpp"

int load_a() { return 1; }
int store_a() { return 2; }
int load_b() { return 5; }
int store_b() { return 6; }
std::uint64_t read_from_memory() { return read_all(); }
const void* table_seen_from_memory() { return registry.backends().data(); }
