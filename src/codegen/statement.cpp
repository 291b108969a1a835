module;
#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>
module muster.codegen;

namespace muster::codegen {

/// The names in use, and for each base name the next number to try. An open table that is emptied at once: what was put
/// there for an earlier kernel counts as empty. The dialect's reserved words stay in it.
class emitter::names {
public:
  /// Forgets every name but the dialect's reserved words.
  void start(const dialect& language) {
    if (reserved_of_ != &language) {
      reserved_of_ = &language;
      slots_.assign(std::bit_ceil(4 * (language.reserved.size() + 64)), {});
      now_ = 1; // of no kernel: what no slot has
      for (const std::string_view word : language.reserved) {
        slot& s = place_of(word);
        s = {.name = word, .kernel = 0, .taken = true, .reserved = true};
      }
    }
    ++now_;
    used_ = language.reserved.size();
  }

  /// Takes a name; false where it was taken, or is a reserved word.
  bool take(std::string_view name) {
    slot& s = of(name);
    if (s.taken) return false;
    s.taken = true;
    s.next = 1;
    return true;
  }

  /// The next number of a base name, which is taken with it.
  std::uint32_t next_number(std::string_view base) {
    slot& s = of(base);
    s.taken = true;
    return s.next++;
  }

  void release(std::string_view name) {
    slot& s = of(name);
    s.taken = false;
    s.next = 1;
  }

private:
  struct slot {
    std::string_view name;
    std::uint64_t kernel = 0; ///< the slot is of this kernel, or empty unless its name is reserved
    std::uint32_t next = 1;
    bool taken = false;
    bool reserved = false;
  };
  std::vector<slot> slots_;
  std::size_t used_ = 0;
  std::uint64_t now_ = 0;
  const dialect* reserved_of_ = nullptr;

  bool is_empty(const slot& s) const { return !s.reserved && s.kernel != now_; }

  /// Where a name is, or would be put.
  slot& place_of(std::string_view name) {
    std::size_t at = detail::hash_whole(name) & (slots_.size() - 1);
    while (!is_empty(slots_[at]) && slots_[at].name != name) at = (at + 1) & (slots_.size() - 1);
    return slots_[at];
  }

  slot& of(std::string_view name) {
    slot* s = &place_of(name);
    if (is_empty(*s)) {
      if (2 * (used_ + 1) > slots_.size()) {
        grow();
        s = &place_of(name);
      }
      ++used_;
      *s = {.name = name, .kernel = now_};
    } else if (s->kernel != now_) { // a reserved word, for the first time in this kernel
      s->kernel = now_;
      s->next = 1;
    }
    return *s;
  }

  void grow() {
    std::vector<slot> old(2 * slots_.size());
    old.swap(slots_);
    for (const bool reserved : {true, false}) // what stays comes first in every chain
      for (const slot& s : old)
        if (s.reserved == reserved && !is_empty(s)) place_of(s.name) = s;
  }
};

emitter::emitter() : names_(std::make_unique<names>()) {}
emitter::~emitter() = default;

void emitter::reset(const kernel_plan& p, const codegen::target& t, registry_view<muster::operation, void(emitter&, const node&)> r,
                    backend_id b) {
  plan = &p;
  source = p.source;
  target = &t;
  language = t.language;
  current = device_ir::no_node;
  registry_ = r;
  backend_ = b;
  values_.assign(source->nodes.size(), {});
  several_.clear();
  symbol_values_.assign(source->symbols.symbol_count(), codegen::no_expression);
  tiles_.assign(plan->blocks.size(), {});
  tensor_values_.assign(source->tensors.size(), codegen::no_expression);
  invariant_.assign(source->nodes.size(), false);
  tensor_used_.assign(source->tensors.size(), false);
  parameter_used_.assign(source->symbols.symbol_count(), false);
  expressions_.clear();
  operands_.clear();
  statements_.clear();
  bodies_.clear();
  variables_.clear();
  kept_block_ = 0;
  kept_used_ = 0;
  names_->start(*language);
  notes.clear();
  ahead_ = false;
  body_ = new_body();
}

std::string_view emitter::keep(std::string_view text) {
  constexpr std::size_t block_size = 4096;
  while (kept_block_ < kept_.size() && kept_[kept_block_].size - kept_used_ < text.size()) {
    ++kept_block_;
    kept_used_ = 0;
  }
  if (kept_block_ == kept_.size()) {
    const std::size_t size = std::max(block_size, text.size());
    kept_.push_back({std::make_unique_for_overwrite<char[]>(size), size});
  }
  char* const copy = kept_[kept_block_].text.get() + kept_used_;
  std::copy(text.begin(), text.end(), copy);
  kept_used_ += text.size();
  return {copy, text.size()};
}

// -- variables

variable emitter::new_variable(std::string_view preferred, std::optional<dtype> type) {
  variable_node v;
  v.preferred = preferred;
  v.typed = type.has_value();
  v.type = type.value_or(dtype::f32);
  variables_.push_back(v);
  return static_cast<variable>(variables_.size() - 1);
}

variable emitter::new_parameter(std::string_view wanted, std::optional<dtype> type) {
  const variable v = new_variable(wanted, type);
  at(v).declared = true;
  at(v).live = true;
  at(v).name = unique_name(wanted);
  return v;
}

expression emitter::define(std::string_view preferred, expression value) {
  const expression_node& n = at(value);
  const variable v = new_variable(preferred, n.typed ? std::optional<dtype>(n.type) : std::nullopt);
  at(v).non_negative = n.non_negative;
  assign(v, value);
  return name(v);
}

expression emitter::define_for(node_id n, expression e) {
  if (is_atom(e)) return e;
  const expression defined = define(source->at(n).name, e);
  at(at(defined).name).origin = n;
  return defined;
}

// -- statements

body emitter::new_body() {
  bodies_.emplace_back();
  return static_cast<body>(bodies_.size() - 1);
}

statement emitter::push(const statement_node& n) {
  statements_.push_back(n);
  const statement s = static_cast<statement>(statements_.size() - 1);
  statement_node& node = at(s);
  node.parent = body_;
  if (current != device_ir::no_node) node.source = current_node().source;
  body_node& b = bodies_[static_cast<std::size_t>(body_)];
  if (ahead_) {
    if (insert_after_ == no_statement) {
      node.next = b.first;
      b.first = s;
    } else {
      node.next = at(insert_after_).next;
      at(insert_after_).next = s;
    }
    if (node.next == no_statement) b.last = s;
    insert_after_ = s;
  } else {
    if (b.last == no_statement) b.first = s;
    else at(b.last).next = s;
    b.last = s;
  }
  if (node.inner != no_body) bodies_[static_cast<std::size_t>(node.inner)].owner = s;
  if (node.orelse != no_body) bodies_[static_cast<std::size_t>(node.orelse)].owner = s;
  if (node.variable != no_variable) {
    variable_node& v = at(node.variable);
    if (v.definition != no_statement && node.what == statement_kind::assign) v.reassigned = true;
    node.next_definition = v.definition;
    v.definition = s;
  }
  return s;
}

statement emitter::assign(variable v, expression value) { return push({.what = statement_kind::assign, .variable = v, .value = value}); }

void emitter::redirect(statement assignment, variable v) {
  statement_node& n = at(assignment);
  at(n.variable).definition = no_statement;
  n.variable = v;
  n.next_definition = at(v).definition;
  if (at(v).definition != no_statement) at(v).reassigned = true;
  at(v).definition = assignment;
}

statement emitter::declare(variable v, std::string_view suffix, expression initial) {
  at(v).declared = true;
  return push({.what = statement_kind::declare, .variable = v, .value = initial, .text = suffix});
}

statement emitter::store(expression target_expression, expression value, op compound) {
  return push({.what = statement_kind::store, .effect = true, .compound = compound, .value = value, .target = target_expression});
}

statement emitter::evaluate(expression effect) { return push({.what = statement_kind::evaluate, .effect = true, .value = effect}); }

statement emitter::for_range(variable v, expression range_call, std::string_view pragma) {
  const body inside = new_body();
  return push({.what = statement_kind::for_range, .variable = v, .value = range_call, .inner = inside, .text = pragma});
}

statement emitter::for_range(variable v, expression range_call, body inside) {
  return push({.what = statement_kind::for_range, .variable = v, .value = range_call, .inner = inside});
}

statement emitter::closure(variable result, expression call_expression, variable index, body inside) {
  return push({.what = statement_kind::closure,
               .effect = result == no_variable,
               .variable = result,
               .value = call_expression,
               .target = name(index),
               .inner = inside});
}

void emitter::defines(statement s, variable v) {
  statement_node& n = at(s);
  n.effect = false;
  n.variable = v;
  n.next_definition = at(v).definition;
  at(v).definition = s;
}

statement emitter::if_then(expression test) {
  const body inside = new_body();
  const body other = new_body();
  return push({.what = statement_kind::if_, .value = test, .inner = inside, .orelse = other});
}

statement emitter::loop_while(expression test) {
  const body inside = new_body();
  return push({.what = statement_kind::while_, .value = test, .inner = inside});
}

statement emitter::break_out() { return push({.what = statement_kind::break_, .effect = true}); }

statement emitter::return_value(expression value) { return push({.what = statement_kind::return_, .effect = true, .value = value}); }

statement emitter::scope() {
  const body inside = new_body();
  return push({.what = statement_kind::scope, .inner = inside});
}

statement emitter::comment(std::string_view text) { return push({.what = statement_kind::comment, .effect = true, .text = text}); }
statement emitter::verbatim(std::string_view line) { return push({.what = statement_kind::verbatim, .effect = true, .text = line}); }

body emitter::inner(statement s) { return at(s).inner; }
body emitter::orelse(statement s) { return at(s).orelse; }

emitter::insertion::insertion(emitter& e, body b, bool ahead) noexcept
    : emitter_(e), saved_(e.body_), saved_after_(e.insert_after_), saved_ahead_(e.ahead_) {
  e.body_ = b;
  e.ahead_ = ahead;
  e.insert_after_ = ahead ? e.bodies_[static_cast<std::size_t>(b)].ahead : no_statement;
}

emitter::insertion::~insertion() {
  if (emitter_.ahead_) emitter_.bodies_[static_cast<std::size_t>(emitter_.body_)].ahead = emitter_.insert_after_;
  emitter_.body_ = saved_;
  emitter_.insert_after_ = saved_after_;
  emitter_.ahead_ = saved_ahead_;
}

emitter::insertion emitter::into(body b) { return {*this, b, false}; }
emitter::insertion emitter::ahead_of(body b) { return {*this, b, true}; }

// -- what is live

void emitter::mark(expression e) {
  if (e == no_expression) return;
  const expression_node n = at(e);
  if (n.what == expression_kind::name) return mark(n.name);
  for (std::uint32_t i = 0; i < n.count; ++i) mark(operands_[n.first + i]);
}

void emitter::mark(variable v) {
  variable_node& n = at(v);
  if (n.live) return;
  n.live = true;
  for (statement s = n.definition; s != no_statement; s = at(s).next_definition) mark(s);
}

void emitter::mark(statement s) {
  statement_node& n = at(s);
  if (n.live) return;
  n.live = true;
  pending_.push_back(s);
}

void emitter::mark_effects(body b) {
  for (statement s = bodies_[static_cast<std::size_t>(b)].first; s != no_statement; s = at(s).next) {
    if (at(s).effect) mark(s);
    if (at(s).inner != no_body) mark_effects(at(s).inner);
    if (at(s).orelse != no_body) mark_effects(at(s).orelse);
  }
}

void emitter::mark_live(body root) {
  pending_.clear();
  mark_effects(root);
  while (!pending_.empty()) {
    const statement s = pending_.back();
    pending_.pop_back();
    const statement_node n = at(s);
    mark(n.value);
    mark(n.target);
    if (n.variable != no_variable) mark(n.variable);
    if (n.what == statement_kind::closure) // what it returns
      if (const statement last = bodies_[static_cast<std::size_t>(n.inner)].last; last != no_statement) mark(last);
    if (n.parent == no_body) continue;
    if (const statement owner = bodies_[static_cast<std::size_t>(n.parent)].owner; owner != no_statement) mark(owner);
  }
}

// -- names

namespace {

std::string_view without_number(std::string_view name) {
  const std::size_t last = name.find_last_not_of("0123456789");
  if (last == std::string_view::npos || last == 0 || last + 1 == name.size() || name[last] != '_') return name;
  return name.substr(0, last);
}

bool is_plain_identifier(std::string_view name) {
  if (name.empty() || name.front() == '_' || (name.front() >= '0' && name.front() <= '9')) return false;
  char before = 'a';
  for (const char c : name) {
    const bool letter =
        (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || static_cast<unsigned char>(c) >= 0x80U;
    if (!letter || (c == '_' && before == '_')) return false;
    before = c;
  }
  return true;
}

/// An identifier in every target's language: what cannot stand in one becomes an underscore, no underscore in front (it
/// marks what tracing inserted), no two in a row (C reserves them).
std::string to_identifier(std::string_view name) {
  std::string result;
  for (const char c : name) {
    const bool letter =
        (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || static_cast<unsigned char>(c) >= 0x80U;
    if (letter) result += c;
    else if (!result.empty() && result.back() != '_') result += '_';
  }
  while (!result.empty() && result.back() == '_') result.pop_back();
  if (result.empty()) return "value";
  if (result.front() >= '0' && result.front() <= '9') result.insert(0, "v");
  return result;
}

} // namespace

void emitter::reserve_name(std::string_view exact) { (void)names_->take(exact); }

std::string_view emitter::unique_name(std::string_view preferred) {
  const std::string_view wanted = is_plain_identifier(preferred) ? preferred : keep(to_identifier(preferred));
  if (names_->take(wanted)) return wanted;
  const std::string_view base = without_number(wanted);
  for (;;) {
    const std::string_view candidate =
        keep_joined(base, std::string_view("_"), std::string_view(std::to_string(names_->next_number(base))));
    if (names_->take(candidate)) return candidate;
  }
}

void emitter::name_variables(body b) {
  // In C a name ends with its block, and a loop's index with the loop: the next may have it again.
  const bool names_end = language->language == codegen::language::c;
  std::vector<std::string_view> own;
  const auto give = [&](variable v, std::vector<std::string_view>& scope) {
    if (!at(v).live || !at(v).name.empty()) return;
    at(v).name = unique_name(at(v).preferred);
    if (names_end) scope.push_back(at(v).name);
  };
  const auto release = [&](std::span<const std::string_view> scope) {
    for (const std::string_view name : scope) names_->release(name);
  };
  std::vector<std::string_view> index;
  for (statement s = bodies_[static_cast<std::size_t>(b)].first; s != no_statement; s = at(s).next) {
    const statement_node n = at(s);
    index.clear();
    if (n.variable != no_variable) give(n.variable, n.what == statement_kind::for_range ? index : own);
    if (!n.live) continue;
    if (n.what == statement_kind::closure) give(at(n.target).name, index);
    if (n.inner != no_body) name_variables(n.inner);
    if (n.orelse != no_body) name_variables(n.orelse);
    release(index);
  }
  release(own);
}

void emitter::resolve_names(body root) { name_variables(root); }

} // namespace muster::codegen
