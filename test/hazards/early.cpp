// What happens before main and after it, in another translation unit than main's.
#include <cstdlib>
#include <cstring>
#include <string>
#include <unistd.h>
#include "programs.hpp"

// Constant-initialised: usable whatever has run.
const char* dump_before_everything = nullptr;
const char* dump_before_main = nullptr;

namespace {

void say(const char* text) { (void)!write(1, text, std::strlen(text)); }

void compare(const char* when) {
  const bool same = dump_before_main != nullptr && dump() == dump_before_main;
  say(when);
  say(same ? ": same\n" : ": DIFFERENT\n");
}

struct first_of_all {
  first_of_all() { dump_before_everything = strdup(dump().c_str()); }
  ~first_of_all() { compare("destructor of the first object"); }
};
[[gnu::init_priority(101)]] first_of_all first; // ahead of every other object of the program

struct early {
  early() {
    dump_before_main = strdup(dump().c_str());
    (void)std::atexit([] { compare("atexit, from an initialiser"); });
  }
  ~early() { compare("static destructor"); }
};
early object;

} // namespace
