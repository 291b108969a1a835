module;
#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>
#include <fmt/format.h>
module muster.backend.triton;

namespace muster::triton {

using device_ir::argument;

void inline_asm_elementwise(emitter& base, const node&) {
  triton_emitter& e = self(base);
  // (asm, constraints, args, dtype, is_pure, pack)
  const argument* assembly = e.argument_at(0);
  const argument* constraints = e.argument_at(1);
  const argument* values = e.argument_at(2);
  const argument* pure = e.argument_at(4);
  const argument* pack = e.argument_at(5);
  if (assembly == nullptr || constraints == nullptr || values == nullptr)
    e.malformed("inline assembly needs text, constraints and arguments");
  std::vector<expression> arguments;
  for (const argument& a : e.source->items(*values)) arguments.push_back(e.literal(a));
  const device_ir::dtype type = e.type_of(e.current);
  const std::vector<expression> all{e.string(assembly->text),
                                    e.string(constraints->text),
                                    e.list(arguments),
                                    e.keyword_argument("dtype", e.dtype_name(type)),
                                    e.keyword_argument("is_pure", e.boolean(pure != nullptr && pure->boolean)),
                                    e.keyword_argument("pack", e.integer(pack == nullptr ? 1 : pack->integer))};
  e.result(e.typed(e.call("tl.inline_asm_elementwise", all), type));
}

/// Two 4-bit floats in a byte, the lower bits first.
void float4_pair(emitter& base, const node&) {
  triton_emitter& e = self(base);
  const expression packed = e.tile_operand(0);
  const expression both[] = {e.cast(e.call("_float4", {packed, e.integer(0)}, device_ir::dtype::f16), device_ir::dtype::f32),
                             e.cast(e.call("_float4", {packed, e.integer(1)}, device_ir::dtype::f16), device_ir::dtype::f32)};
  e.results(both);
}

namespace {

/// `{}`, `{0}` and `{name}` replaced by the arguments' names, `{{` and `}}` by braces.
std::string formatted(triton_emitter& e, std::string_view source, std::span<const std::string_view> names) {
  std::string out;
  std::size_t next = 0;
  for (std::size_t i = 0; i < source.size(); ++i) {
    const char c = source[i];
    if ((c == '{' || c == '}') && i + 1 < source.size() && source[i + 1] == c) {
      out += c;
      ++i;
    } else if (c == '{') {
      const std::size_t end = source.find('}', i);
      if (end == std::string_view::npos) e.malformed("a brace without its partner in the source");
      const std::string_view digits = source.substr(i + 1, end - i - 1);
      std::size_t position = next++;
      if (!digits.empty() && std::from_chars(digits.data(), digits.data() + digits.size(), position).ptr != digits.data() + digits.size())
        e.unsupported("inline source with named arguments");
      if (position >= names.size()) e.malformed("the source names more arguments than there are");
      out += names[position];
      i = end;
    } else {
      out += c;
    }
  }
  return out;
}

/// A variable that is named at once, as the source's text needs its name.
std::string_view named_argument(triton_emitter& e, const argument& a) {
  const codegen::variable v = e.new_parameter(a.what == argument::kind::node ? e.source->at(a.node).name : "argument");
  e.at(e.assign(v, e.literal(a))).effect = true;
  return e.name_of(v);
}

} // namespace

/// `inline_triton(source, [arguments], output_like)`: the source's last line is the value.
void inline_triton(emitter& base, const node& n) {
  triton_emitter& e = self(base);
  const argument* source = e.argument_at(0);
  const argument* values = e.argument_at(1);
  if (source == nullptr || source->what != argument::kind::string) e.malformed("inline_triton begins with its source");
  std::vector<std::string_view> names;
  if (values != nullptr && (values->what == argument::kind::list || values->what == argument::kind::tuple))
    for (const argument& a : e.source->items(*values)) names.push_back(named_argument(e, a));
  const std::string text = formatted(e, source->text, names);
  const std::size_t end = text.find_last_not_of(" \n");
  if (end == std::string::npos) e.malformed("inline_triton has no source");
  const std::size_t line = text.rfind('\n', end);
  if (line != std::string::npos) e.verbatim(e.keep(text.substr(0, line)));
  const std::size_t begin = text.find_first_not_of(" \n", line == std::string::npos ? 0 : line);
  const expression value = e.text(e.keep(text.substr(begin, end + 1 - begin)));
  if (n.type.what == device_ir::type::kind::tensor) e.effect_result(e.typed(value, n.type.element));
  else e.evaluate(value);
}

namespace {

/// The name behind the first `def` of a source, or nothing.
std::string_view defined_name(std::string_view source) {
  std::size_t at = source.find("def ");
  if (at == std::string_view::npos) return {};
  at = source.find_first_not_of(' ', at + 4);
  const std::size_t end = source.find_first_of(" (", at);
  return end == std::string_view::npos ? std::string_view() : source.substr(at, end - at);
}

/// The source without the indentation that all its lines have.
std::string dedented(std::string_view source) {
  std::size_t common = std::string_view::npos;
  const auto each_line = [&](auto&& what) {
    for (std::size_t at = 0; at < source.size();) {
      const std::size_t end = std::min(source.find('\n', at), source.size());
      const std::string_view text = source.substr(at, end - at);
      what(text, text.find_first_not_of(' '));
      at = end + 1;
    }
  };
  each_line([&](std::string_view, std::size_t indent) { common = std::min(common, indent); });
  std::string out;
  each_line([&](std::string_view text, std::size_t indent) {
    if (indent == std::string_view::npos && out.empty()) return;
    (out += indent == std::string_view::npos ? std::string_view() : text.substr(common)) += '\n';
  });
  while (out.ends_with("\n\n")) out.pop_back();
  return out;
}

/// The function that is called: its source becomes one of the module's; one that the document merely names is the caller's.
std::string_view called_function(triton_emitter& e, const argument& function) {
  if (function.what == argument::kind::function) {
    const std::string note = fmt::format(
        "{} is a @triton.jit function that the document does not hold: set it in this module before the first launch", function.text);
    if (std::find(e.notes.begin(), e.notes.end(), note) == e.notes.end()) e.notes.push_back(note);
    return function.text;
  }
  if (function.what != argument::kind::string) e.malformed("triton_kernel begins with a function or its source");
  const std::string_view name = defined_name(function.text);
  if (name.empty()) e.malformed("triton_kernel's source defines no function");
  std::string source = dedented(function.text);
  if (source.find("@triton.jit") == std::string::npos) source.insert(0, "@triton.jit\n");
  if (e.functions.find(source) != std::string::npos) return name;
  if (e.functions.find(fmt::format("\ndef {}(", name)) != std::string::npos)
    e.unsupported(fmt::format("two functions of the name {}", name));
  ((e.functions += '\n') += source) += '\n';
  return name;
}

} // namespace

/// `triton_kernel(function or source, arguments, output_like)`: arguments in a list or tuple.
void triton_kernel(emitter& base, const node& n) {
  triton_emitter& e = self(base);
  const argument* function = e.argument_at(0);
  const argument* values = e.argument_at(1);
  if (function == nullptr) e.malformed("triton_kernel begins with a function or its source");
  std::vector<expression> arguments;
  if (values != nullptr && values->what != argument::kind::none) {
    if (values->what != argument::kind::list && values->what != argument::kind::tuple)
      e.malformed("triton_kernel's arguments are a list or a tuple");
    for (const argument& a : e.source->items(*values)) arguments.push_back(e.literal(a));
  }
  const expression value = e.call(called_function(e, *function), arguments);
  if (n.type.what == device_ir::type::kind::tensor) return e.effect_result(e.typed(value, n.type.element));
  const argument* like = e.argument_at(2);
  const bool several = like != nullptr && (like->what == argument::kind::list || like->what == argument::kind::tuple);
  if (!several) {
    e.evaluate(value);
    return;
  }
  const codegen::variable all = e.new_variable(n.name);
  e.at(e.assign(all, value)).effect = true;
  std::vector<expression> items;
  for (std::size_t i = 0; i < e.source->items(*like).size(); ++i) {
    const argument& item = e.source->items(*like)[i];
    const expression part = e.subscript(e.name(all), {e.integer(static_cast<std::int64_t>(i))});
    items.push_back(item.what == argument::kind::node ? e.typed(part, e.type_of(item.node)) : part);
  }
  e.results(items);
}

} // namespace muster::triton
