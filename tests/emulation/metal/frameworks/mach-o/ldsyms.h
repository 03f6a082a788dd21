// The header of the library that this is linked into, which the linker defines.
#pragma once

struct mach_header_64;

extern "C" const struct mach_header_64 _mh_dylib_header;
