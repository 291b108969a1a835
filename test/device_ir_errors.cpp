#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>
#include <doctest/doctest.h>
#include "documents.hpp"
import muster.error;
import muster.symbolic;
import muster.device_ir;

using namespace muster::device_ir;

namespace {

/// "LINE:COLUMN: MESSAGE" of the error that reading and verifying the text gives.
std::string fault(std::string_view text) {
  try {
    const document d = parse(text, "k.txt");
    verify(d);
  } catch (const muster::DeviceIRError& error) {
    return std::to_string(error.line()) + ":" + std::to_string(error.column()) + ": " + error.message();
  }
  return "no error";
}

constexpr std::string_view header = "device_ir 1\n"
                                    "kernel k\n"
                                    "host_tensor x f32[64] strides [1]\n"
                                    "symbol s0 int parameter n hint 3\n"
                                    "block 0 u0 size 64 tile block_size 16\n"
                                    "block 1 u1 size 64 tile block_size 16\n";

/// The fault of a document with this header line; it stands on line 3.
std::string header_fault(std::string_view line) {
  return fault("device_ir 1\nkernel k\n" + std::string(line) + "\nroot g_0 blocks [] phase 0\ndef g_0():\n    return None\n");
}

/// The fault of a document with this statement; it stands on line 10.
std::string statement_fault(std::string_view statement) {
  return fault(std::string(header) + "root g_0 blocks [0] phase 0\ndef g_0():\n    a: \"f32[u0]\" = f()\n" + std::string(statement) +
               "\n    return None\n");
}

/// The fault of a config; it stands on line 3, from column 8.
std::string config_fault(std::string_view json) {
  return fault("device_ir 1\nkernel k\nroot g_0 blocks [] phase 0\nconfig " + std::string(json) + "\ndef g_0():\n    return None\n");
}

/// The fault of a document with these header lines, from line 7 on, and these graphs.
std::string document_fault(std::string_view lines, std::string_view graphs) {
  return fault(std::string(header) + std::string(lines) + std::string(graphs));
}

using table = std::vector<std::pair<std::string, std::string>>;

} // namespace

TEST_CASE("device_ir: an error shows the line and a caret under the code point") {
  try {
    (void)parse("device_ir 1\nkernel k\nroot g_0 blocks [] phase 0\ndef g_0():\n    a = f('ü', $)\n    return None\n", "k.txt");
    FAIL("no error");
  } catch (const muster::DeviceIRError& error) {
    CHECK(std::string(error.what()) == "k.txt:5:16: error: expected an argument, found '$'\n"
                                       "      a = f('ü', $)\n"
                                       "                 ^");
  }
}

TEST_CASE("device_ir: malformed frames of a document") {
  const table cases = {
      {"", "1:1: expected 'device_ir 1', the format's first line, found the end of the line"},
      {"\n\n# x\n", "3:4: expected 'device_ir 1', the format's first line, found the end of the line"},
      {"kernel k\n", "1:1: expected 'device_ir 1', the format's first line, found 'kernel'"},
      {" device_ir 1\n", "1:2: expected 'device_ir 1', the format's first line, found 'device_ir'"},
      {"device_ir 2\n", "1:11: unknown version '2' of the format: this is a reader of 'device_ir 1'"},
      {"device_ir\n", "1:10: expected 'device_ir 1', found the end of the line; the line's form is: device_ir 1"},
      {"device_ir 1 1\n", "1:13: expected the end of the line, found '1'; the line's form is: device_ir 1"},
      {"device_ir 1\n", "1:12: the header has no 'kernel NAME' line"},
      {"device_ir 1\nsetting fast_math true\n", "2:1: expected 'kernel NAME' before 'setting'"},
      {"device_ir 1\nkernel k\nkernel l\n", "3:1: 'kernel' is given twice; the first is on line 2"},
      {"device_ir 1\nkernel k\ndevice_ir 1\n", "3:1: 'device_ir' is given twice; the first is on line 1"},
      {"device_ir 1\nkernel 1k\n", "2:8: expected the kernel's name, a Python identifier, found '1k'; the line's form is: kernel NAME"},
      {"device_ir 1\nkernel None\n", "2:8: 'None' is a word of Python, not a kernel's name"},
      {"device_ir 1\nkernel k\n  setting fast_math true\n", "3:3: unexpected indentation in the header"},
      {"device_ir 1\nkernel k\nsettin fast_math true\n", "3:1: unknown directive 'settin'; did you mean 'setting'?"},
      {"device_ir 1\nkernel k\nzzz\n", "3:1: unknown directive 'zzz'"},
      {"device_ir 1\nkernel k\n$\n", "3:1: expected a directive or 'def', found '$'"},
      {"device_ir 1\nkernel k\n", "2:9: the header has no 'root GRAPH blocks [IDS] phase N' line"},
      {"device_ir 1\nkernel k\nroot g_0 blocks [] phase 0\n", "3:27: expected 'def GRAPH(…):', found the end of the line"},
      {"device_ir 1\nkernel k\nroot g_0 blocks [] phase 0\ndef h_0():\n    return None\n",
       "4:5: graph 'h_0' has no root, loop, branch or helper line in the header"},
      {"device_ir 1\nkernel k\nroot g_0 blocks [] phase 0\nbranch h_1\ndef g_0():\n    return None\n",
       "4:8: graph 'h_1' has no body: expected 'def h_1(…):'"},
      {"device_ir 1\nkernel k\nroot g_0 blocks [] phase 0\ndef g_0():\n    return None\ndef g_0():\n    return None\n",
       "6:5: graph 'g_0' is defined twice"},
      {"device_ir 1\nkernel k\nroot g blocks [] phase 0\ndef g():\n    return None\n",
       "4:5: a graph's name must end in its number, below 2147483648"},
      {"device_ir 1\nkernel k\nroot g_99999999999 blocks [] phase 0\ndef g_99999999999():\n    return None\n",
       "4:5: a graph's name must end in its number, below 2147483648"},
      {"device_ir 1\nkernel k\nroot g_0 blocks [] phase 0\ndef g_0():\n", "4:11: graph 'g_0' has no 'return'"},
      {"device_ir 1\nkernel k\nroot g_0 blocks [] phase 0\ndef g_0():\nreturn None\n",
       "5:1: graph 'g_0' has no 'return': expected an indented statement"},
      {"device_ir 1\nkernel k\nroot g_0 blocks [] phase 0\ndef g_0():\n    return None\n    a = f()\n",
       "6:5: expected 'def GRAPH(…):', found 'a'"},
      {"device_ir 1\nkernel k\nroot g_0 blocks [] phase 0\ndef g_0():\n    return\n", "5:11: expected a blank, found the end of the line"},
      {"device_ir 1\nkernel k\nroot g_0 blocks [] phase 0\ndef g_0(a b):\n", "4:11: expected ',', found 'b'"},
      {"device_ir 1\nkernel k\nroot g_0 blocks [] phase 0\ndef g_0()\n", "4:10: expected ':', found the end of the line"},
      {"device_ir 1\nkernel k\nroot g_0 blocks [] phase 0\ndef g_0(a: f32):\n", "4:12: expected '\"', found 'f32'"},
      {"device_ir 1\nkernel \xC3\x28\n", "2:8: invalid UTF-8"},
      {"device_ir 1\nkernel k\n# \xE2\x82\n", "3:3: invalid UTF-8"},
      {"device_ir 1\nkernel k\nroot g_0 blocks [] phase 0\ndef g_0():\n    # src a.py:1 x\x1by\n    return None\n",
       "5:19: a control character in a source line"},
      {std::string("device_ir 1\nkernel k\0l\n", 23),
       "2:9: expected the end of the line, found '" + std::string(1, '\0') + "'; the line's form is: kernel NAME"},
      {"device_ir 1\nkernel k\rl\n", "2:9: expected the end of the line, found '\r'; the line's form is: kernel NAME"},
  };
  for (const auto& [text, expected] : cases) CHECK_MESSAGE(fault(text) == expected, text);
}

TEST_CASE("device_ir: malformed header lines") {
  const std::string usage_of_tensor = "; the line's form is: host_tensor NAME DTYPE[SIZES] strides [STRIDES]";
  const std::string usage_of_block = "; the line's form is: block ID VAR size EXPR|None tile|reduction block_size EXPR";
  const std::string usage_of_symbol = "; the line's form is: symbol NAME int|float KIND …";
  const table cases = {
      {"setting speed true", "3:9: unknown setting 'speed': expected static_shapes, index_dtype, fast_math or dot_precision"},
      {"setting fast_math yes", "3:19: expected false or true, found 'yes'; the line's form is: setting NAME VALUE"},
      {"setting index_dtype i16", "3:21: expected i32 or i64, found 'i16'; the line's form is: setting NAME VALUE"},
      {"setting dot_precision tf33", "3:23: expected tf32, tf32x3 or ieee, found 'tf33'; the line's form is: setting NAME VALUE"},
      {"setting fast_math true\nsetting fast_math true", "4:9: setting 'fast_math' is given twice"},
      {"symbol s0 int grid 0\nhost_tensor x f32[1] strides [1]", "4:1: 'host_tensor' must come before 'symbol'"},
      {"host_tensor x g32[64] strides [1]",
       "3:15: unknown data type 'g32': expected f64, f32, f16, bf16, f8e4m3fn, f8e5m2, i64, i32, i16, i8, u8 or b8"},
      {"host_tensor x f32 strides [1]", "3:18: expected '[', found ' '" + usage_of_tensor},
      {"host_tensor x f32[64 strides [1]", "3:22: expected ',', found 'strides'" + usage_of_tensor},
      {"host_tensor x f32[64] strides [1, 2]", "3:31: 2 strides for 1 sizes"},
      {"host_tensor x f32[64] [1]", "3:23: expected 'strides', found '['" + usage_of_tensor},
      {"host_tensor x f32[6 +] strides [1]", "3:22: expected an expression"},
      {"host_tensor x f32[18446744073709551616] strides [1]", "3:19: an integer must fit 64 bits"},
      {"host_tensor x f32[1e999] strides [1]", "3:19: a number beyond the range of f64"},
      {"host_tensor x f32[Foo(1)] strides [1]", "3:19: unknown function 'Foo'"},
      {"host_tensor", "3:12: expected 'host_tensor NAME DTYPE[SIZES] strides [STRIDES]', found the end of the line" + usage_of_tensor},
      {"host_tensor x f32[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1] strides [1]", "3:83: more than 32 dimensions"},
      {"symbol s0 integer parameter n", "3:11: expected int or float, found 'integer'" + usage_of_symbol},
      {"symbol s0 int size 0",
       "3:15: expected parameter, grid, tile_begin, tile_end, tile_id or tile_count, found 'size'" + usage_of_symbol},
      {"symbol s0 int grid x", "3:20: expected a block's number, found 'x'" + usage_of_symbol},
      {"symbol s0 int grid 99999999999", "3:20: a block's number must fit 31 bits"},
      {"symbol s0 int grid -1", "3:20: expected a block's number, found '-'" + usage_of_symbol},
      {"symbol s0 int parameter n hint many", "3:32: expected a number, found 'many'" + usage_of_symbol},
      {"symbol s0 int parameter  hint 3", "3:26: expected the host's expression for the parameter"},
      {"symbol inf int parameter n", "3:8: 'inf' is not a symbol's name"},
      {"block x u0 size 64 tile block_size 16", "3:7: expected the block's number, found 'x'" + usage_of_block},
      {"block 0 u0 64 tile block_size 16", "3:12: expected 'size', found '64'" + usage_of_block},
      {"block 0 u0 size 64 tiles block_size 16", "3:20: expected tile or reduction, found 'tiles'" + usage_of_block},
      {"block 0 u0 size 64 tile", "3:24: expected a blank, found the end of the line" + usage_of_block},
      {"block 0 u0 size 64 tile block_size 16 parents [0]", "3:39: expected 'jagged_parents', found 'parents'" + usage_of_block},
      {"block 0 u0 size 64 tile block_size 16 jagged_parents [0,",
       "3:57: expected a block's number, found the end of the line" + usage_of_block},
      {"root g_0 blocks [] phase 0", "4:6: graph 'g_0' is declared twice"},
      {"root h_1 blocks [0 1] phase 0", "3:20: expected ',', found '1'; the line's form is: root GRAPH blocks [IDS] phase N"},
      {"root h_1 blocks [0]", "3:20: expected a blank, found the end of the line; the line's form is: root GRAPH blocks [IDS] phase N"},
  };
  for (const auto& [line, expected] : cases) CHECK_MESSAGE(header_fault(line) == expected, line);
}

TEST_CASE("device_ir: malformed statements") {
  const table cases = {
      {"    b f()", "10:7: expected ':' or '=', found 'f'"},
      {"    b: f32 = f()", "10:8: expected '\"', found 'f32'"},
      {"    b: \"f32[u0] = f()", "10:8: the type's closing '\"' is missing"},
      {"    b: \"f31[u0]\" = f()",
       "10:9: unknown data type 'f31': expected f64, f32, f16, bf16, f8e4m3fn, f8e5m2, i64, i32, i16, i8, u8 or b8"},
      {"    b: \"f32[u0\" = f()", "10:15: expected ',', found '\"'"},
      {"    b: \"f32[u0] \" = f()", "10:16: expected '\"', found ' '"},
      {"    b: \"Sym(u0\" = f()", "10:15: expected ')', found '\"'"},
      {"    b: \"\" = f()", "10:9: expected a data type, found '\"'"},
      {"    b =", "10:8: expected an argument, found the end of the line"},
      {"    b = f(", "10:11: expected an argument, found the end of the line"},
      {"    b = f(a", "10:12: expected ',' or ')', found the end of the line"},
      {"    b = f(a a)", "10:13: expected ',' or ')', found 'a'"},
      {"    b = f(,)", "10:11: expected an argument, found ','"},
      {"    b = f(a) + 1", "10:14: expected an operator, ';' or the end of the line, found '+'"},
      {"    b = f(a);  a", "10:17: expected '= None', found the end of the line"},
      {"    b = f(a);  a = 1", "10:20: expected a name of which this is the last use, found '1'"},
      {"    b = f(a);  a = None x", "10:25: expected the end of the line, found 'x'"},
      {"    b = f(c)", "10:11: the name 'c' is not defined"},
      {"    b = f(b)", "10:11: the name 'b' is not defined"},
      {"    load = f()\n    b = f(laod)", "11:11: the name 'laod' is not defined; did you mean 'load'?"},
      {"    b = f(completely_different)", "10:11: the name 'completely_different' is not defined"},
      {"    b = f(k = 1, a)", "10:18: expected 'name = value' behind another"},
      {"    b = f(k = 1, k = 2)", "10:18: the keyword 'k' is given twice"},
      {"    b = f(18446744073709551616)", "10:11: an integer must fit 64 bits"},
      {"    b = f(-9223372036854775809)", "10:11: an integer must fit 64 bits"},
      {"    b = f(1e999)", "10:11: a number beyond the range of f64"},
      {"    b = f(12abc)", "10:11: malformed number"},
      {"    b = f(1.5.2)", "10:11: malformed number"},
      {"    b = f(007)", "10:11: an integer does not start with 0"},
      {"    b = f(-x)", "10:12: expected a number, found 'x'"},
      {"    b = f('open)", "10:11: the string's closing quote is missing"},
      {"    b = f('open\\')", "10:11: the string's closing quote is missing"},
      {"    b = f('\\q')", "10:12: unknown escape in a string: expected one of \\n \\t \\r \\\\ \\' \\\" \\a \\b \\f \\v \\0 \\x \\u \\U"},
      {"    b = f('\\x4')", "10:12: expected 2 hexadecimal digits in the escape"},
      {"    b = f('\\ud800')", "10:12: the escape is not a Unicode character"},
      {"    b = f('\\U00110000')", "10:12: the escape is not a Unicode character"},
      {"    b = f('a\tb')", "10:13: a control character in a string"},
      {"    b = f(slice(1, 2))", "10:11: a slice has three parts: slice(start, stop, step)"},
      {"    b = f(slice(1, 2, 3, 4))", "10:11: a slice has three parts: slice(start, stop, step)"},
      {"    b = f(torch.float33)", "10:11: unknown constant 'torch.float33': expected a data type as 'torch.float32', or 'torch.strided'"},
      {"    b = f(device('cuda'))", "10:18: expected 'type', found '''"},
      {"    b = f(device(type=cuda))", "10:23: expected the device's type in quotes, found 'cuda'"},
      {"    b = f(device(type='cuda', index=-1))", "10:37: expected the device's index, found '-'"},
      {"    b = a[0", "10:12: expected ']', found the end of the line"},
      {"    b = a[x]", "10:11: expected a number, found 'x'"},
      {"    b = a[0.5]", "10:11: expected an integer, found '0'"},
      {"    b = a + b", "10:13: the name 'b' is not defined"},
      {"    b = a +", "10:12: expected an argument, found the end of the line"},
      {"    b = a $ a", "10:11: expected an operator, ';' or the end of the line, found '$'"},
      {"    None = f()", "10:5: 'None' is not a node's name"},
      {"    1 = f()", "10:5: expected a statement or 'return', found '1'"},
      {"    b = f(\xF0\x9F\x99\x82)", "10:11: expected an argument, found '\xF0\x9F\x99\x82'"},
      {"    a: \"f32[u0]\" = f()", "10:5: the name 'a' is defined twice in graph 'g_0'"},
      {"    b: \"f32[u7]\" = f()", "10:5: the symbol 'u7' is neither declared nor a block's variable"},
      {"    b: \"Sym(u7)\" = a + 1", "no error"}, // it says what u7 is
      {"    b: \"Sym(u7)\" = helion_language__tracing_ops__get_symnode('u7')",
       "10:5: the symbol 'u7' is neither declared nor a block's variable"},
      {"    b: \"Sym(u7 + 1)\" = f()", "10:5: the symbol 'u7' is neither declared nor a block's variable"},
      {"    b = helion_language__tracing_ops__host_tensor('z')", "10:5: host tensor 'z' is not declared in the header"},
      {"    b = helion_language__tracing_ops__host_tensor(1)", "10:5: 'b' must name its host tensor with a string"},
      {"    b = helion_language__tracing_ops__host_tensor()", "10:5: 'b' lacks its argument 1, the host tensor's name"},
      {"    b: \"f16[64]\" = helion_language__tracing_ops__host_tensor('x')",
       "10:5: the type of 'b' is not that of host tensor 'x', f32[64]"},
      {"    b: \"f32[65]\" = helion_language__tracing_ops__host_tensor('x')",
       "10:5: the type of 'b' is not that of host tensor 'x', f32[64]"},
      {"    b: \"f16[u0]\" = torch.ops.prims.convert_element_type.default(a, torch.bfloat16)",
       "10:5: 'b' is declared f16, but made as torch.bfloat16"},
      {"    b: \"f16[u0]\" = torch.ops.aten.full.default([1], 0, dtype = torch.int32)",
       "10:5: 'b' is declared f16, but made as torch.int32"},
      {"    b: \"f16[u0]\" = helion_language_creation_ops_full([1], 0, torch.float32, None)",
       "10:5: 'b' is declared f16, but made as torch.float32"},
      {"    b = helion_language__tracing_ops__for_loop(9, [0], [1], [])", "10:5: 'b' runs graph 9, which does not exist"},
      {"    b = helion_language__tracing_ops__for_loop(a, [0], [1], [])", "10:5: argument 1 of 'b' is not the number of a graph"},
      {"    b = helion_language__tracing_ops__for_loop(0, [0], [1], [])", "10:5: 'b' runs graph 'g_0', which is a root, not a loop"},
  };
  for (const auto& [statement, expected] : cases) CHECK_MESSAGE(statement_fault(statement) == expected, statement);
}

TEST_CASE("device_ir: what only the whole document shows") {
  const std::string root = "root g_0 blocks [0] phase 0\n";
  const std::string body = "def g_0():\n    return None\n";
  const std::string loop = "def l_1(a: \"f32[]\"):\n    return [a]\n";
  const auto run = [](std::string_view call) {
    return "def g_0():\n    z = f()\n    r = helion_language_" + std::string(call) + "\n    return None\n";
  };
  CHECK(document_fault(root, body) == "no error");
  CHECK(fault("device_ir 1\nkernel k\nhost_tensor x f32[1] strides [1]\nhost_tensor x f32[1] strides [1]\n" +
              std::string("root g_0 blocks [] phase 0\n") + body) == "4:13: host tensor 'x' is declared twice");
  CHECK(fault("device_ir 1\nkernel k\nhost_tensor x f32[n] strides [1]\nroot g_0 blocks [] phase 0\n" + body) ==
        "3:13: the symbol 'n' is neither declared nor a block's variable");
  CHECK(fault("device_ir 1\nkernel k\nsymbol a int grid 0\nsymbol a int grid 0\nblock 0 u0 size 1 tile block_size 1\nroot g_0 blocks [0] "
              "phase 0\n" +
              body) == "4:1: symbol 'a' is declared twice");
  CHECK(fault("device_ir 1\nkernel k\nsymbol a int grid 3\nroot g_0 blocks [] phase 0\n" + body) ==
        "3:1: symbol 'a' is of block 3, which is not declared");
  CHECK(document_fault("block 1 u2 size 1 tile block_size 1\n" + root, body) == "7:1: block 1 is declared twice");
  CHECK(document_fault("block 2 u2 size n tile block_size 1\n" + root, body) ==
        "7:1: the symbol 'n' is neither declared nor a block's variable");
  CHECK(document_fault("block 2 u2 size 8 tile block_size n\n" + root, body) == "no error"); // the caller's to say
  CHECK(document_fault("block 2 u2 size 8 tile block_size (n//2)\n" + root, body) ==
        "7:1: the symbol 'n' is neither declared nor a block's variable");
  CHECK(document_fault("block 2 2*u0 size 8 tile block_size 32\n" + root, body) ==
        "7:1: block 2 is tiled, and its variable '2*u0' is an expression: expected a symbol of its own, with the expression as block_size");
  CHECK(document_fault("block 2 u2 size None tile block_size 1 jagged_parents [2]\n" + root, body) ==
        "7:1: block 2 is its own jagged parent");
  CHECK(document_fault("block 2 u2 size None tile block_size 1 jagged_parents [7]\n" + root, body) ==
        "7:1: block 2 has the jagged parent 7, which is not declared");
  CHECK(document_fault("root g_0 blocks [7] phase 0\n", body) == "7:1: graph 'g_0' iterates over block 7, which is not declared");
  CHECK(document_fault("root g_0 blocks [0, 0] phase 0\n", body) == "7:1: graph 'g_0' iterates over block 0 twice");
  CHECK(document_fault(root + "root h_1 blocks [0] phase 0\n", body + "def h_1():\n    return None\n") ==
        "8:1: block 0 is in the grids of both 'g_0' and 'h_1'");
  CHECK(document_fault(root + "branch h_0\n", body + "def h_0():\n    return []\n") ==
        "11:5: graphs 'g_0' and 'h_0' have the same number 0");
  CHECK(document_fault(root, "def g_0(a):\n    return None\n") == "8:5: root graph 'g_0' has parameters");
  CHECK(document_fault(root + "loop l_1 blocks [1]\n", loop + run("_tracing_ops__for_loop(1, [0, 0], [1], [z])")) ==
        "13:5: 'r' has 2 begins and 1 end for the 1 block of graph 'l_1'");
  CHECK(document_fault(root + "loop l_1 blocks [1]\n", loop + run("_tracing_ops__for_loop(1, [0], [1], [])")) ==
        "13:5: 'r' passes 0 values to graph 'l_1', which has 1 parameter");
  CHECK(document_fault(root + "loop l_1 blocks [1]\n", loop + run("_tracing_ops__for_loop(1, [0], [1])")) ==
        "13:5: 'r' lacks its argument 4, the values that the loop carries");
  CHECK(document_fault(root + "loop l_1 blocks [1]\n", loop + run("_tracing_ops__for_loop(1, 0, [1], [z])")) ==
        "13:5: argument 2 of 'r' must be a list, where each block's loop begins");
  CHECK(document_fault(root + "loop l_1 blocks [1]\n", loop + run("_tracing_ops__for_loop(1, [0], [1], [z])\n    i = r[1]")) ==
        "14:5: 'i' is value 1 of 'r', which has 1 value");
  CHECK(document_fault(root + "branch l_1\n", loop + run("_tracing_ops__if(z, 1, 1, [z], [])")) ==
        "13:5: 'r' passes 0 values to graph 'l_1', which has 1 parameter");
  CHECK(document_fault(root + "branch l_1\n", loop + run("_tracing_ops__while_loop(1, 1, [z, z])")) ==
        "13:5: 'r' passes 2 values to graph 'l_1', which has 1 parameter");
  CHECK(document_fault(root + "helper l_1\n", loop + run("scan_ops__associative_scan(1, z, 0, False, False)")) ==
        "13:5: 'r' combines 1 operand with graph 'l_1', which has 1 parameter: expected two an operand");
  CHECK(document_fault(root + "helper l_1\n",
                       "def l_1(a, b):\n    return (a, b)\n" + run("scan_ops__associative_scan(1, z, 0, False, False)")) ==
        "13:5: 'r' combines 1 operand with graph 'l_1', which returns 2 values");
  CHECK(document_fault(root + "loop l_1 blocks [1]\n",
                       "def l_1():\n    r = helion_language__tracing_ops__for_loop(1, [0], [1], [])\n    return []\n" + body) ==
        "10:5: graph 'l_1' runs itself");
  CHECK(document_fault(root + "branch l_1\nbranch m_2\n",
                       "def l_1():\n    r = helion_language__tracing_ops__if(True, 2, 2, [], [])\n    return []\n"
                       "def m_2():\n    r = helion_language__tracing_ops__if(True, 1, 1, [], [])\n    return []\n" +
                           body)
            .find("runs itself, through '") != std::string::npos);
}

TEST_CASE("device_ir: a program's own faults are found too") {
  document d = parse(std::string(header) + "root g_0 blocks [0] phase 0\ndef g_0():\n    a = f()\n    b = f(a)\n    return b\n");
  verify(d);
  const auto fails = [](const document& broken) {
    try {
      verify(broken);
      return false;
    } catch (const muster::DeviceIRError&) {
      return true;
    }
  };
  const document good = d.clone();
  d.arguments[0].node = static_cast<node_id>(1);
  CHECK(fails(d));
  d = good.clone();
  d.graphs[0].result.node = static_cast<node_id>(2);
  CHECK(fails(d));
  d = good.clone();
  d.graphs[0].nodes.count = 3;
  CHECK(fails(d));
  d = good.clone();
  d.graphs[0].declared = false;
  CHECK(fails(d));
  d = good.clone();
  d.nodes[1].target = {};
  CHECK(fails(d));
  CHECK_FALSE(fails(good));
  CHECK(fails(document()));
}

TEST_CASE("device_ir: malformed configs") {
  const table cases = {
      {"[]", "4:8: expected a JSON object: {\"KEY\": VALUE, …}"},
      {"{\"num_warps\": \"4\"}", "4:22: 'num_warps' expects an integer of 64 bits"},
      {"{\"num_warps\": 0}", "4:22: 'num_warps' expects a positive integer"},
      {"{\"num_warps\": 4.5}", "4:22: 'num_warps' expects an integer of 64 bits"},
      {"{\"num_warps\": 99999999999999999999}", "4:22: 'num_warps' expects an integer of 64 bits"},
      {"{\"block_sizes\": 4}", "4:24: 'block_sizes' expects a list of integers"},
      {"{\"block_sizes\": [4, null]}", "4:28: 'block_sizes' expects an integer of 64 bits"},
      {"{\"loop_orders\": [[0, 2]]}", "4:25: 'loop_orders' must hold permutations of 0, 1, …"},
      {"{\"pid_type\": \"round\"}",
       "4:21: 'pid_type' expects one of \"flat\", \"xyz\", \"persistent_blocked\", \"persistent_interleaved\""},
      {"{\"indexing\": [\"pointer\", \"hand\"]}", "4:33: 'indexing' expects one of \"pointer\", \"block_ptr\", \"tensor_descriptor\""},
      {"{\"indexing\": 3}", "4:21: 'indexing' expects a string or a list of strings"},
      {"{\"range_flattens\": [1]}", "4:28: 'range_flattens' expects true, false or null"},
      {"{\"static_ranges\": [null]}", "4:27: 'static_ranges' expects true or false"},
      {"{\"é\": 1, \"num_warps\": \"4\"}", "4:30: 'num_warps' expects an integer of 64 bits"},
      {"{\"num_warps\": 4, \"num_warps\": 8}", "4:25: the key 'num_warps' is given twice"},
      {"{\"own\": 4, \"own\": 8}", "4:19: the key 'own' is given twice"},
      {"{} {}", "4:11: expected the end behind the JSON object"},
  };
  for (const auto& [json, expected] : cases) CHECK_MESSAGE(config_fault(json) == expected, json);
  for (const std::string_view broken :
       {"{", "{\"a\"", "{\"a\": }", "{\"a\": 1,}", "{\"a\" 1}", "{a: 1}", "{\"a\": nul}", "{\"a\": tru}", "{\"a\": 1x}", "{\"a\": [1, 2}",
        "{\"a\": {\"b\": }}", "{\"a\": \"\\q\"}", "{\"a\": \"open}", "{\"num_warps\": 4", "{\"num_warps\": }"})
    CHECK_MESSAGE(config_fault(broken) != "no error", broken);
  const std::string deep = "{\"a\": " + std::string(500, '[') + std::string(500, ']') + "}";
  CHECK(config_fault(deep).find("nests too deep") != std::string::npos);
}

TEST_CASE("device_ir: configs are read over a base, and keep what they do not know") {
  const config base = parse_config(R"({"block_sizes": [16, 32], "num_warps": 4, "split_k": 2, "note": {"a": [1, "x"]}})");
  CHECK(base.block_sizes == std::vector<std::int64_t>{16, 32});
  REQUIRE(base.others.size() == 2);
  CHECK(base.others[1] == std::pair<std::string, std::string>{"note", R"({"a": [1, "x"]})"});
  const config c = parse_config(R"({"num_warps": 8, "split_k": 4, "reduction_loops": [null, 64], "range_multi_buffers": [null, true, false],
      "load_eviction_policies": ["", "first", "last"], "indexing": "tensor_descriptor", "pid_type": "xyz", "maxnreg": null})",
                                base);
  CHECK(c.block_sizes == base.block_sizes);
  CHECK(c.num_warps == 8);
  CHECK(c.others[0].second == "4");
  CHECK(c.reduction_loops == std::vector<std::optional<std::int64_t>>{std::nullopt, 64});
  CHECK(c.range_multi_buffers == std::vector<std::optional<bool>>{std::nullopt, true, false});
  CHECK(c.load_eviction_policies == std::vector<eviction>{eviction::none, eviction::first, eviction::last});
  CHECK(c.indexing == std::vector<indexing>{indexing::tensor_descriptor});
  CHECK(c.pid_type == pid_type::xyz);
  CHECK_FALSE(c.maxnreg);
  std::string printed;
  print(c, printed);
  std::string again;
  print(parse_config(printed), again);
  CHECK(again == printed);
  CHECK(printed.find(R"("reduction_loops": [null, 64])") != std::string::npos);
}

TEST_CASE("device_ir: a config's error is placed in its text") {
  try {
    (void)parse_config("{\"num_warps\": 4,\n  \"num_stages\": -1}", {}, "--config", 1, 1);
    FAIL("no error");
  } catch (const muster::DeviceIRError& error) {
    CHECK(std::string(error.what()) ==
          "--config:2:17: error: 'num_stages' expects a positive integer\n    \"num_stages\": -1}\n                  ^");
  }
}

TEST_CASE("device_ir: huge and hostile documents end soon, in an error") {
  const auto nested = [](std::string_view open, std::string_view close, int times) {
    std::string text = "    b = f(";
    for (int i = 0; i < times; ++i) text += open;
    for (int i = 0; i < times; ++i) text += close;
    return text + ")";
  };
  CHECK(statement_fault(nested("[", "]", 64)) == "no error");
  CHECK(statement_fault(nested("[", "]", 65)) == "10:75: arguments nest deeper than 64 levels");
  CHECK(statement_fault(nested("(", ")", 100000)) == "10:75: arguments nest deeper than 64 levels");
  CHECK(statement_fault(nested("slice(1, 2, ", ")", 1000)).ends_with("arguments nest deeper than 64 levels"));
  CHECK(statement_fault("    b: \"Sym(" + std::string(100000, '(') + "\" = f()").ends_with("the expression nests deeper than 200 levels"));
  CHECK(statement_fault("    b = f(" + std::string(2U << 20U, ' ') + ")") == "10:1048577: the line is longer than 1 MiB");
  CHECK(fault(std::string(100, '\n') + std::string((64U << 20U) + 1, ' ')) == "1:1: the text is longer than 64 MiB");
  CHECK(header_fault("host_tensor x f32[] strides []" + std::string(1U << 20U, ' ')) == "3:1048577: the line is longer than 1 MiB");
  std::string many = "def g_0(";
  for (int i = 0; i < 60000; ++i) many += "p" + std::to_string(i) + ", ";
  CHECK(fault("device_ir 1\nkernel k\nroot g_0 blocks [] phase 0\n" + many + "):\n    return None\n") != "no error");
  std::string tensors;
  for (int i = 0; i < 5000; ++i) tensors += "host_tensor x" + std::to_string(i) + " f32[] strides []\n";
  CHECK(header_fault(tensors) == "4099:1: more than 4096 host tensors");
}

TEST_CASE("device_ir: every prefix and every damaged byte of a document is an error or a document") {
  for (const auto& file : documents::own()) {
    const std::string text = documents::read(file);
    document d;
    const auto try_reading = [&d](std::string_view damaged) {
      try {
        parse_into(d, damaged);
        verify(d);
        (void)to_string(d);
      } catch (const muster::DeviceIRError& error) {
        CHECK(error.line() > 0);
      }
    };
    for (std::size_t size = 0; size < text.size(); size += 7) try_reading(std::string_view(text).substr(0, size));
    std::string damaged = text;
    for (std::size_t i = 0; i < text.size(); i += 5) {
      for (const char c : {'\0', '\n', '"', '(', '\xFF', '9', ' '}) {
        damaged[i] = c;
        try_reading(damaged);
      }
      damaged[i] = text[i];
    }
  }
}
