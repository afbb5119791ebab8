// A shared library that is not Millrace's.
extern "C" int nothing_of_millrace() { return 0; }
