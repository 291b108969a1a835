#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
import muster.error;
import muster.device_ir;

/// Any bytes are a document or a located error; a document prints as text that reads as an equal document, which prints
/// the same.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  namespace device_ir = muster::device_ir;
  static device_ir::document reused;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try {
    device_ir::parse_into(reused, text, "fuzz");
  } catch (const muster::DeviceIRError&) {
    return 0;
  }
  try {
    device_ir::verify(reused);
  } catch (const muster::DeviceIRError&) {
  } // what does not verify still prints
  const std::string printed = device_ir::to_string(reused);
  const device_ir::document again = device_ir::parse(printed, "printed");
  if (!device_ir::equal(reused, again) || device_ir::to_string(again) != printed) std::abort();
  if (!device_ir::equal(reused.clone(), again)) std::abort();
  return 0;
}
