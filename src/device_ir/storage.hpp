// Members defined here are marked inline: in a module a member is not, by being defined in its class.
// Included behind `module muster.device_ir;` by the units of src/device_ir: what they share and nobody else sees.

namespace muster::device_ir {

/// A fault in a config's JSON: where (byte offset from its start), and what would be right.
struct config_fault {
  std::size_t offset;
  std::string message;
};

/// A JSON parser with its buffers, kept for reuse.
struct config_reader;
struct config_reader_deleter {
  void operator()(config_reader* reader) const noexcept;
};
using config_reader_owner = std::unique_ptr<config_reader, config_reader_deleter>;
config_reader_owner make_config_reader();
/// Bytes that must be readable behind a config's text.
std::size_t config_padding() noexcept;
/// Reads `json` over what `into` holds. `config_padding()` bytes behind it are readable. Throws config_fault.
void read_config(config_reader& reader, std::string_view json, config& into);

bool is_valid_utf8(std::string_view text) noexcept;
/// The offset of the first byte that is no part of valid UTF-8; the size of the text if there is none.
std::size_t first_invalid_utf8(std::string_view text) noexcept;

/// Text in chunks: what was appended never moves.
class text_store {
public:
  std::string_view keep(std::string_view text);
  void clear() noexcept;

private:
  void grow(std::size_t at_least);
  std::vector<std::unique_ptr<char[]>> chunks_;
  std::size_t first_size_ = 0;
  char* next_ = nullptr;
  std::size_t left_ = 0;
};

/// Up to 16 bytes of a key, as two words.
struct key_words {
  std::uint64_t low = 0;
  std::uint64_t high = 0;
};

/// 16 bytes from `key` must be readable, however short it is.
inline key_words words_of_padded(const char* key, std::size_t size) noexcept {
  static_assert(std::endian::native == std::endian::little, "the masks keep the first bytes of little-endian words");
  const auto mask = [](std::size_t bytes) { return ~std::uint64_t{0} >> (64 - bytes * 8); }; // of 1 to 8 bytes
  key_words w;
  std::memcpy(&w.low, key, 8);
  if (size <= 8) {
    w.low &= size == 0 ? 0 : mask(size);
    return w;
  }
  std::memcpy(&w.high, key + 8, 8);
  if (size < 16) w.high &= mask(size - 8);
  return w;
}

inline key_words words_of(const char* key, std::size_t size) noexcept {
  if (size >= 16) return words_of_padded(key, size);
  char copy[16] = {};
  std::memcpy(copy, key, size);
  return words_of_padded(copy, size);
}

/// A map from text to numbers, by open addressing. Forgetting everything is O(1), and after it the map is small again,
/// in memory that is still in the cache. Keys are not copied. `Padded`: 16 bytes from a key's start are readable.
template <bool Padded> class text_index {
public:
  static constexpr std::uint32_t absent = 0xFFFFFFFFU;

  text_index() = default;
  /// With room for `keys` keys from the start.
  inline explicit text_index(std::size_t keys)
      : slots_(std::bit_ceil(std::max<std::size_t>(keys * 2 + 2, 8))), smallest_(slots_.size()), mask_(slots_.size() - 1) {}

  /// The number at `key`, or `absent`.
  [[nodiscard]] inline std::uint32_t find(std::string_view key) const noexcept {
    const key_words words = read(key.data(), key.size());
    const std::uint32_t hash = hash_of(key, words);
    for (std::size_t at = hash & mask_;; at = (at + 1) & mask_) {
      const slot& s = slots_[at];
      if (s.generation != generation_) return absent;
      if (is_key(s, key, words)) return s.value;
    }
  }
  /// Sets the number at `key`; the one that stood there before, or `absent`.
  inline std::uint32_t set(std::string_view key, std::uint32_t value) {
    const key_words words = read(key.data(), key.size());
    const std::uint32_t hash = hash_of(key, words);
    std::size_t at = hash & mask_;
    for (; slots_[at].generation == generation_; at = (at + 1) & mask_)
      if (is_key(slots_[at], key, words)) return std::exchange(slots_[at].value, value);
    slots_[at] = {words, key.data(), static_cast<std::uint32_t>(key.size()), hash, value, generation_};
    if (++count_ * 2 > mask_) grow();
    return absent;
  }
  void clear() noexcept;

private:
  struct slot {
    key_words words;
    const char* key = nullptr;
    std::uint32_t size = 0;
    std::uint32_t hash = 0;
    std::uint32_t value = 0;
    std::uint32_t generation = 0;
  };
  static constexpr std::size_t usual = 64;
  void grow();

  static inline key_words read(const char* key, std::size_t size) noexcept {
    return Padded ? words_of_padded(key, size) : words_of(key, size);
  }

  static inline bool is_key(const slot& s, std::string_view key, const key_words& words) noexcept {
    return s.words.low == words.low && s.words.high == words.high && s.size == key.size() &&
           (key.size() <= 16 || std::memcmp(s.key + 16, key.data() + 16, key.size() - 16) == 0);
  }

  static inline std::uint32_t hash_of(std::string_view key, const key_words& words) noexcept {
    std::uint64_t h = mixed(mixed(key.size(), words.low), words.high);
    for (std::size_t at = 16; at < key.size(); at += 16) {
      const key_words more = read(key.data() + at, key.size() - at);
      h = mixed(mixed(h, more.low), more.high);
    }
    return static_cast<std::uint32_t>(h >> 32U);
  }
  static inline std::uint64_t mixed(std::uint64_t a, std::uint64_t b) noexcept {
    const std::uint64_t h = (a ^ b) * 0x9E3779B97F4A7C15U;
    return h ^ h >> 32U;
  }

  std::vector<slot> slots_ = std::vector<slot>(usual); ///< the first mask_ + 1 are in use
  std::vector<slot> spare_;                            ///< where the map grows into
  std::size_t smallest_ = usual;
  std::size_t mask_ = usual - 1;
  std::size_t count_ = 0;
  std::uint32_t generation_ = 1;
};

template <bool Padded> void text_index<Padded>::grow() {
  const std::size_t old_size = mask_ + 1;
  const std::uint32_t old_generation = generation_;
  spare_.resize(std::max(spare_.size(), old_size * 2));
  std::swap(slots_, spare_);
  ++generation_;
  mask_ = old_size * 2 - 1;
  for (std::size_t i = 0; i < old_size; ++i) {
    if (spare_[i].generation != old_generation) continue;
    std::size_t at = spare_[i].hash & mask_;
    while (slots_[at].generation == generation_) at = (at + 1) & mask_;
    slots_[at] = spare_[i];
    slots_[at].generation = generation_;
  }
}

template <bool Padded> void text_index<Padded>::clear() noexcept {
  count_ = 0;
  mask_ = smallest_ - 1;
  constexpr std::uint32_t last = 0xFFFFFF00U; // grow counts on a little
  if (generation_++ < last) return;
  for (slot& s : slots_) s.generation = 0;
  for (slot& s : spare_) s.generation = 0;
  generation_ = 1;
}

/// A graph's line in the header, until its body is met.
struct graph_declaration {
  std::string_view name;
  graph::kind what = graph::kind::branch;
  std::vector<std::int32_t> blocks;
  std::int32_t phase = 0;
  std::uint32_t line = 0;
  bool has_body = false;
};

struct document::storage {
  std::string text;          ///< the document's text with padding behind it
  std::size_t text_size = 0; ///< without padding
  text_store kept;
  text_index<true> names; ///< of the current graph, to nodes
  text_index<true> type_texts;
  std::vector<type> types;
  std::vector<argument> stack; ///< arguments of calls and lists that are still open
  std::vector<graph_declaration> declared;
  std::vector<std::int32_t> ids;
  std::string unescaped;
  config_reader_owner reader;

  [[nodiscard]] inline std::string_view whole() const noexcept { return std::string_view(text).substr(0, text_size); }
};

/// The key to a document's storage.
class parser {
public:
  using storage = document::storage;
  static inline storage& storage_of(document& d) noexcept { return *d.storage_; }
};

/// One row a directive: its word, its rank in the header's order, what it looks like.
struct directive {
  std::string_view word;
  int rank;
  std::string_view usage;
};

std::string_view word(symbol_declaration::origin o) noexcept;
std::string_view word(graph::kind k) noexcept;
std::string_view word(precision p) noexcept;

struct named_dtype {
  std::string_view name;
  std::string_view torch_name;
};

/// A Python operator of a statement: its spelling and the target that stands for it.
struct python_operator {
  std::string_view spelling;
  std::string_view target;
};
inline constexpr std::array<python_operator, 16> python_operators = {{
    {"//", "operator.floordiv"},
    {"**", "operator.pow"},
    {"==", "operator.eq"},
    {"!=", "operator.ne"},
    {"<=", "operator.le"},
    {">=", "operator.ge"},
    {"+", "operator.add"},
    {"-", "operator.sub"},
    {"*", "operator.mul"},
    {"/", "operator.truediv"},
    {"%", "operator.mod"},
    {"<", "operator.lt"},
    {">", "operator.gt"},
    {"&", "operator.and_"},
    {"|", "operator.or_"},
    {"-", "operator.neg"},
}};
inline constexpr std::string_view getitem_target = "operator.getitem";
inline constexpr std::string_view negation_target = "operator.neg";
inline constexpr std::string_view not_target = "operator.not_";
inline constexpr std::string_view identity_target = "operator.identity";

} // namespace muster::device_ir
