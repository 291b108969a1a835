#pragma once
#include <string>

/// What the programs generate: run.py writes the text of test/documents into a file of this name.
inline constexpr const char* documents[] = {
#include "documents.inc"
};

/// dump.cpp: every cell of the built-in registry, and the documents' kernels.
std::string dump();
