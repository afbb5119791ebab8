// Includes what is not public, and so must not compile.
#include "millrace/runtime/kernel.h"

int main() {}
