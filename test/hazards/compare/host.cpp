// host PLUGIN PLUGIN: loads both, unloads the second, asks the first.
#include <cstdio>
#include <dlfcn.h>

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  void* const one = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
  void* const two = dlopen(argv[2], RTLD_NOW | RTLD_LOCAL);
  if (one == nullptr || two == nullptr) return std::printf("%s\n", dlerror()), 2;
  const auto ask = reinterpret_cast<int (*)()>(dlsym(one, "right_handlers"));
  std::printf("both %d\n", ask());
  std::fflush(stdout);
  dlclose(two);
  std::printf("one %d\n", ask());
}
