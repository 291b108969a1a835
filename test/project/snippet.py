"""Prints the C++ block of a Markdown file that is named NAME: the one between ```cpp NAME and ```."""

import re
import sys

file, name = sys.argv[1:]
with open(file, encoding="utf-8") as markdown:
    block = re.search(rf"^```cpp {re.escape(name)}\n(.*?)^```$", markdown.read(), re.MULTILINE | re.DOTALL)
if block is None:
    sys.exit(f"{file} has no block ```cpp {name}")
sys.stdout.write(block.group(1))
