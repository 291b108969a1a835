#pragma once
#include <cstdint>
#include <frozen/string.h>
#include <frozen/unordered_map.h>

/// The numbers of the first so many names; a unit of its own, since a thousand names take more steps than compilers allow by default.
template <int Names> const frozen::unordered_map<frozen::string, std::uint16_t, Names>& frozen_map();
