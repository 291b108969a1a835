"""What Clang's -verify does, for GCC: passes if and only if the compiler's errors are those that the file expects.

usage: expect.py FILE COMMAND…

A failed assertion is compared in Clang's form, `static assertion failed due to requirement 'CONDITION': MESSAGE`; GCC writes the
condition on a line of its own, and module names behind the entities.
"""

import os
import re
import subprocess
import sys
from pathlib import Path


def expected(text: str) -> list[re.Pattern[str]]:
    """A pattern for each comment `expected-error@*:* {{TEXT}}`, or `expected-error-re`, whose text has expressions in braces."""
    found = []
    for is_expression, body in re.findall(r"^// expected-error(-re)?@\*:\* \{\{(.*)\}\}$", text, re.MULTILINE):
        parts = re.split(r"\{\{(.*?)\}\}", body) if is_expression else [body]
        found.append(re.compile("".join(part if i % 2 else re.escape(part) for i, part in enumerate(parts))))
    if not found and "// expected-no-diagnostics" not in text:
        raise SystemExit("the file says nothing of what it expects")
    return found


def errors(output: str) -> list[str]:
    """GCC's errors, as Clang writes them."""
    found: list[str] = []
    for line in re.sub(r"@muster[\w.]*", "", output).splitlines():
        if error := re.search(r" (?:error|fatal error|sorry): (.*)", line):
            found.append(error[1])
        elif found and (condition := re.match(r".*(?:•|note:) ‘(.*)’ evaluates to false", line)):
            found[-1] = found[-1].replace("failed: ", f"failed due to requirement '{condition[1]}': ")
    return found


def main() -> int:
    file, command = Path(sys.argv[1]), sys.argv[2:]
    done = subprocess.run([*command, "-fsyntax-only", str(file)], text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          env={**os.environ, "LC_ALL": "C.UTF-8"})
    wanted, found = expected(file.read_text(encoding="utf-8")), errors(done.stdout)
    for pattern in list(wanted):
        if match := next((error for error in found if pattern.search(error)), None):
            wanted.remove(pattern)
            found.remove(match)
    if not wanted and not found and (done.returncode == 0) == ("expected-error" not in file.read_text(encoding="utf-8")):
        return 0
    print(done.stdout)
    for pattern in wanted:
        print(f"expected, but not there: {pattern.pattern}")
    for error in found:
        print(f"not expected: {error}")
    return 1


if __name__ == "__main__":
    sys.exit(main())
