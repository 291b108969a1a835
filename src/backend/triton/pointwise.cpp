module;
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>
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

} // namespace muster::triton
