#include "frozen.hpp"
#include <cstdint>
#include <utility>

namespace {

#define NAME(number, text) {frozen::string(text), number},
constexpr std::pair<frozen::string, std::uint16_t> entries[] = {
#include LITERALS
};
#undef NAME
constexpr auto map = frozen::make_unordered_map(entries);

} // namespace

template <> const frozen::unordered_map<frozen::string, std::uint16_t, NAMES>& frozen_map<NAMES>() { return map; }
