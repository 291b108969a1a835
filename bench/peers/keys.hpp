#pragma once
#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <string_view>
#include <vector>

/// What is looked up, in buffers of its own: never a table's own text.
namespace bench {

inline constexpr std::size_t key_count = 4096;

struct keys {
  std::vector<std::size_t> operations;
  std::vector<std::size_t> backends;
  std::vector<std::string_view> names;         ///< of the operations; in `misses`, a character of each is wrong
  std::vector<std::string_view> backend_names;
  std::string text;
  std::string backend_text;

  keys() = default;
  keys(const keys&) = delete;
};

enum class order {
  hot,    ///< 16 keys, again and again
  random, ///< all, evenly
  miss,   ///< as random, but no name is there
};

/// Fills `k` from the names that there are.
template <class Names, class BackendNames> void choose(keys& k, order o, const Names& names, const BackendNames& backend_names) {
  std::mt19937 random(7);
  std::vector<std::size_t> ends;
  std::vector<std::size_t> backend_ends;
  for (std::size_t i = 0; i < key_count; ++i) {
    const std::size_t repeated = o == order::hot && i >= 16 ? i - 16 : i;
    k.operations.push_back(repeated == i ? random() % std::size(names) : k.operations[repeated]);
    k.backends.push_back(repeated == i ? random() % std::size(backend_names) : k.backends[repeated]);
    const std::string_view name = names[k.operations[i]];
    k.text += name;
    if (o == order::miss) k.text[k.text.size() - 1 - random() % name.size()] = '#';
    k.backend_text += backend_names[k.backends[i]];
    ends.push_back(k.text.size());
    backend_ends.push_back(k.backend_text.size());
  }
  const auto cut = [](std::vector<std::string_view>& out, const std::string& text, const std::vector<std::size_t>& at) {
    for (std::size_t begin = 0; const std::size_t end : at) out.push_back(std::string_view(text).substr(begin, end - begin)), begin = end;
  };
  cut(k.names, k.text, ends);
  cut(k.backend_names, k.backend_text, backend_ends);
}

} // namespace bench
