#include <memory>
#include <utility>
#include <vector>
import muster.launch;

// A type that contains itself is as deep as its objects, which may contain themselves: it is for argument views.
struct list : std::vector<std::pair<muster::device, std::shared_ptr<list>>> {};
struct numbers : std::vector<std::pair<int, std::shared_ptr<numbers>>> {};

bool good(const numbers& no_tensors) { return muster::try_find_device(no_tensors).has_value(); }

// expected-error@*:* {{a type that contains itself cannot be searched as a type: pass argument views}}
bool bad(const list& deep) { return muster::try_find_device(deep).has_value(); }
