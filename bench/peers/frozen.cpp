#include "frozen.hpp"
#include <cstdint>
#include <utility>
#include LITERALS

namespace {

#define PAIR(number, text) {frozen::string(text), number},
constexpr std::pair<frozen::string, std::uint16_t> entries[] = {EACH_NAME(PAIR)};
#undef PAIR
constexpr auto map = frozen::make_unordered_map(entries);

} // namespace

template <> const frozen::unordered_map<frozen::string, std::uint16_t, NAMES>& frozen_map<NAMES>() { return map; }
