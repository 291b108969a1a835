module;
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

} // namespace muster::triton
