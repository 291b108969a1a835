// Prints a dump, made by the program's other objects; no muster module is mentioned here.
#include <cstdio>
#include <string>

std::string dump_one();
std::string dump_two();

int main() {
  const std::string one = dump_one();
  std::fputs(one.c_str(), stdout);
  return one == dump_two() ? 0 : 1;
}
