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

/// A map from text to numbers, by open addressing. Forgetting everything is O(1). Keys are not copied.
class text_index {
public:
  static constexpr std::uint32_t absent = 0xFFFFFFFFU;

  /// The number at `key`, or `absent`.
  [[nodiscard]] inline std::uint32_t find(std::string_view key) const noexcept {
    const std::uint32_t hash = hash_of(key);
    for (std::size_t at = hash & mask();; at = (at + 1) & mask()) {
      const slot& s = slots_[at];
      if (s.generation != generation_) return absent;
      if (s.hash == hash && s.key == key) return s.value;
    }
  }
  /// Sets the number at `key`; the one that stood there before, or `absent`.
  std::uint32_t set(std::string_view key, std::uint32_t value);
  void clear() noexcept;

private:
  struct slot {
    std::string_view key;
    std::uint32_t hash = 0;
    std::uint32_t value = 0;
    std::uint32_t generation = 0;
  };
  [[nodiscard]] inline std::size_t mask() const noexcept { return slots_.size() - 1; }
  void grow();

  static inline std::uint32_t hash_of(std::string_view text) noexcept {
    std::uint64_t h = text.size();
    const char* p = text.data();
    std::size_t left = text.size();
    std::uint64_t word = 0;
    for (; left >= 8; left -= 8, p += 8) {
      std::memcpy(&word, p, 8);
      h = (h ^ word) * 0x9E3779B97F4A7C15U;
      h ^= h >> 32U;
    }
    word = 0;
    for (; left > 0; --left, ++p) word = word << 8U | static_cast<unsigned char>(*p);
    h = (h ^ word) * 0x9E3779B97F4A7C15U;
    return static_cast<std::uint32_t>(h >> 32U);
  }

  std::vector<slot> slots_ = std::vector<slot>(64);
  std::size_t count_ = 0;
  std::uint32_t generation_ = 1;
};

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
  text_index names; ///< of the current graph, to nodes
  text_index type_texts;
  std::vector<type> types;
  std::vector<argument> stack; ///< arguments of calls and lists that are still open
  std::vector<graph_declaration> declared;
  std::vector<std::int32_t> ids;
  std::string unescaped;
  config_reader_owner reader;

  [[nodiscard]] inline std::string_view whole() const noexcept { return std::string_view(text).substr(0, text_size); }
};

/// One row a directive: its word, its rank in the header's order, what it looks like.
struct directive {
  std::string_view word;
  int rank;
  std::string_view usage;
};

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
    {"//", "operator.floordiv"}, {"**", "operator.pow"}, {"==", "operator.eq"}, {"!=", "operator.ne"},
    {"<=", "operator.le"},       {">=", "operator.ge"},  {"+", "operator.add"}, {"-", "operator.sub"},
    {"*", "operator.mul"},       {"/", "operator.truediv"}, {"%", "operator.mod"}, {"<", "operator.lt"},
    {">", "operator.gt"},        {"&", "operator.and_"}, {"|", "operator.or_"}, {"-", "operator.neg"},
}};
inline constexpr std::string_view getitem_target = "operator.getitem";
inline constexpr std::string_view negation_target = "operator.neg";
inline constexpr std::string_view not_target = "operator.not_";
inline constexpr std::string_view identity_target = "operator.identity";

} // namespace muster::device_ir
