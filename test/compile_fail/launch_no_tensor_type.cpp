#include <string>
#include <tuple>
#include <vector>
import muster.launch;

// What can hold no tensor cannot be asked for a device; what can, and try_find_device always, compile.
muster::device good(const std::vector<muster::device>& devices) { return muster::find_device(1, std::string("text"), devices); }
bool also_good() { return muster::try_find_device(1, std::string("text")).has_value(); }

// expected-error@*:* {{no argument can hold a tensor or a device: find_device could only throw NoTensorArgs}}
muster::device bad() { return muster::find_device(1, std::string("text"), std::tuple<>(), std::vector<int>()); }

// expected-error@*:* {{no argument can hold a tensor or a device: launch_device could only throw NoTensorArgs}}
muster::device bad_launch(const std::vector<int>& numbers) { return muster::launch_device(1, numbers); }
