// Reads lines `BACKEND OPERATION` and prints those that are found.
#include <iostream>
#include <string>

bool has(const char* backend, const char* operation);

int main() {
  std::string backend;
  std::string operation;
  while (std::cin >> backend >> operation)
    if (has(backend.c_str(), operation.c_str())) std::cout << backend << ' ' << operation << '\n';
}
