/* errors.c - prints docs/errors.md from the one list of statuses.
 *
 * `make docs` writes it; `make lint` compares it, so that the page cannot say
 * anything else than the header. */
#include <stdio.h>

#include "cuvil.h"

int main(void) {
  printf(
      "# Statuses\n\n"
      "Generated from `include/cuvil.h` by `make docs`; do not edit.\n\n"
      "A command that fails ends with a line `cuvil-X: error: NAME (0xNN): "
      "what, where, what to do` and exits with 1 (2 for wrong usage).\n\n"
      "| name | number | meaning | remedy |\n|---|---|---|---|\n");
#define ROW(name, number, meaning, remedy) \
  printf("| `%s` | 0x%02X | %s | %s |\n", #name, number, meaning, remedy);
  CUVIL_STATUS_LIST(ROW)
  return 0;
}
